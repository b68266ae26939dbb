"""Neighbouring tables, each a world of its own, and what a stranger may see of both."""

import dataclasses
import importlib
import json
import re
import shutil
import types
from pathlib import Path

import pyarrow.parquet as pq

from dpiw.ledger import Ledger
from dpiw.privacy.randomness import SeededNoise
from dpiw.run import steps
from dpiw.run.run import ReleaseRun
from tests.conftest import make_workplace, town

POSTPROCESSING, PUBLISH, INGEST = (
    importlib.import_module(f"dpiw.{name}")  # the packages hold functions of the same names
    for name in ("run.weigh", "run.publish", "data.source.ingest")
)
DRAWN = (
    # by file: the fields that may differ, as prefixes of a path
    ("certificate.json", ("diagnostics.", "verdict", "ledger_head")),
    ("manifest.json", ("files.synthetic.parquet.", "files.report.html.",
                       "files.replicate_weights.parquet.", "files.certificate.json.",
                       "files.croissant.json.", "ledger_head", "certificate_sha256")),
    ("croissant.json", ("sha256", "contentSize")),
)  # fmt: skip
DIGESTS = ("output_digest", "manifest_digest", "token_digest", "nonce")


class StubNoise(SeededNoise):
    """The same noise in both worlds, and allowed to be published: for this test alone."""

    @property
    def publishable(self) -> bool:
        return True


@dataclasses.dataclass(frozen=True)
class Template:
    """A workplace that is copied for each world: same ledger, same key, same spec."""

    root: Path
    folder: Path

    def world(self, number: int, lines: list[str]) -> Path:
        root = self.folder / f"w{number:05d}"
        shutil.copytree(self.root, root)
        (root / "data.csv").write_text("\n".join(lines) + "\n")
        return root


def template_of(factory, **changes):
    place = make_workplace.__wrapped__(factory)(**changes)
    return Template(place.root, factory.mktemp("worlds"))


def fix_draws(monkeypatch):
    """Sampling after the draws: the same seeds in both worlds; and one day, at midnight too."""
    monkeypatch.setattr(PUBLISH, "today", lambda: "2027-01-31T00:00:00Z")
    for module in (POSTPROCESSING, PUBLISH):
        stub = types.SimpleNamespace(
            randbits=lambda bits: 20_270_131, token_hex=module.secrets.token_hex
        )
        monkeypatch.setattr(module, "secrets", stub)


def table(seed):
    return town(60, seed).to_csv(index=False).splitlines()


HOSTILE = (
    "30,100.0,north,true", ",,,", "999,1e400,mars,maybe", "-1,-inf,=1+1,", "abc,nan,other,TRUE",
    f"{'9' * 400},{'1' * 300}.5,{'x' * 9000},0", "0,0,south,false", "100,1000,other,1",
    '"4\x00","1,5","a\nb","yes"', "1e2,5e-324,\ufffd,\u0130",
)  # fmt: skip


def neighbour(lines, number, rng):
    """One person more or fewer: an ordinary one, or one of the hostile ones."""
    at = int(rng.integers(1, len(lines)))
    if number % 5 == 4:
        return lines[:at] + lines[at + 1 :]
    return [*lines[:at], HOSTILE[number % len(HOSTILE)], *lines[at:]]


def run_world(root):
    """The steps to the end; how each ended."""
    run = ReleaseRun.prepare(root / "release.yaml", period=None)
    ends = []
    noise = StubNoise(7)
    for step in (
        steps.reserve, steps.ingest, lambda r: steps.fit_generator(r, noise=noise),
        steps.draw_synthetic, lambda r: steps.fit_weights(r, noise=noise),
        steps.debias, steps.diagnose, steps.publish,
    ):  # fmt: skip
        try:
            step(run)
            ends.append("ok")
        except Exception as error:
            ends.append(type(error).__name__)
            break
    return run, ends


def flat(value, path=""):
    """A JSON value as {path: text}; lists of named things go by name."""
    if isinstance(value, dict):
        return {k: v for key, item in value.items() for k, v in flat(item, f"{path}{key}.").items()}
    if isinstance(value, list):
        named = [item.get("name", n) if isinstance(item, dict) else n
                 for n, item in enumerate(value)]  # fmt: skip
        return {
            k: v
            for name, item in zip(named, value, strict=True)
            for k, v in flat(item, f"{path}{name}.").items()
        }
    return {path.rstrip("."): json.dumps(value)}


def was_drawn(path, fields):
    """Whether a path is one of the fields, or below one that ends with a dot."""
    return any(
        path.startswith(field) if field.endswith(".") else path.split(".")[-1] == field
        for field in fields
    )


def masked(name, data):
    """A JSON file's fields without those that were drawn; of these the names remain.

    Of the verdict's reasons not even their number remains: they judge released weights. Of measured
    weights' texts the credit and the exponent are masked, which follow from the noisy sum.
    """
    fields = dict(DRAWN).get(name, ())
    words = re.compile(
        r"Weights: [a-z ]+\."
        r"|(?<=to noisy means )\(credit [^)]*\)|(?<=in proportion to weight)\^[^\"]*"
    )
    masked_fields = {
        path: "(drawn)" if was_drawn(path, fields) else words.sub("", text)
        for path, text in flat(json.loads(data)).items()
    }
    return {
        re.sub(r"^(diagnostics\.reasons)\..*", r"\1", path): t for path, t in masked_fields.items()
    }


def public_view(root):
    """Everything public that was not drawn."""
    run, ends = run_world(root)
    entries = [
        (e.seq, e.kind.value, e.population, e.run_key, e.attempt, e.stage,
         {k: "(digest)" if k in DIGESTS else v for k, v in flat(dict(e.payload)).items()})
        for e in Ledger.open(root / "state" / "ledger.sqlite").entries()
    ]  # fmt: skip
    view = {"ends": ends, "entries": entries, "release": run.release_id}
    folder = root / "state" / "releases" / run.release_id
    if not folder.exists():
        return view
    view["files"] = sorted((p.name, oct(p.stat().st_mode)) for p in folder.iterdir())
    for path in folder.iterdir():
        if path.suffix == ".json":
            view[path.name] = masked(path.name, path.read_bytes())
    view["schema.json"] = (folder / "schema.json").read_bytes()
    view["signature"] = (folder / "manifest.sig").stat().st_size
    metadata = pq.ParquetFile(folder / "synthetic.parquet").metadata
    view["footer"] = {
        "rows": metadata.num_rows, "groups": metadata.num_row_groups, "by": metadata.created_by,
        "columns": str(metadata.schema).partition("\n")[2],
        "facts": {k: v for k, v in metadata.metadata.items()
                  if k not in (b"dpiw.certificate_sha256", b"dpiw.weights_verdict")},
    }  # fmt: skip
    return view


def released(view):
    """What is released, without what operators see."""
    assert view["ends"] == ["ok"] * 8
    return {name: part for name, part in view.items() if name not in ("ends", "entries")}


def differences(one, two):
    """Where two views differ: (part, field, one, two)."""
    differing = []
    for part in sorted(set(one) | set(two)):
        first, second = one.get(part), two.get(part)
        if not isinstance(first, dict) or not isinstance(second, dict):
            first, second = {"": first}, {"": second}
        differing += [
            (part, name, str(first.get(name))[:300], str(second.get(name))[:300])
            for name in sorted(set(first) | set(second))
            if first.get(name) != second.get(name)
        ]
    return differing
