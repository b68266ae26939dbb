"""What a run publishes, where, signed by whom: folders, keys, weights, the certificate."""

import os
import stat

import numpy as np
import pyarrow.parquet as pq
import pytest

from dpiw.data import snapshots
from dpiw.errors import NotPublishableError, ReleaseError
from dpiw.ledger import Ledger, StageState
from dpiw.privacy.randomness import SecureNoise, SeededNoise
from dpiw.release import parquet, publication
from dpiw.release.manifest import row_files
from dpiw.release.signing import create_key_pair
from dpiw.release.verification import verify
from dpiw.run import publish, steps
from dpiw.run.weigh import read_rows
from tests.support.around import around
from tests.support.whole_runs import diagnosed, draw, finish, ingested, loaded, prepared


def ready(place):
    return diagnosed(draw(prepared(place)))


@pytest.mark.parametrize("mode", [0o700, 0o2775])
def test_publishing_leaves_the_mode_of_a_folder_that_was_there(place, tmp_path, mode):
    """It may be a home: what else lies in it was never meant for the world."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "diary.txt").write_text("mine")
    home.chmod(mode)
    place.rewrite("publish_to: state/releases", f"publish_to: {home}")
    folder = steps.publish(ready(place))
    assert stat.S_IMODE(home.stat().st_mode) == mode
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_a_folder_of_releases_that_is_made_is_readable_by_all(place, umask, open_umask, synced):
    ready(place)
    outer = place.root / "public"
    place.rewrite("publish_to: state/releases", "publish_to: public/releases")
    run = prepared(place)
    os.umask(umask)
    synced.clear()
    steps.publish(run)
    assert stat.S_IMODE((outer / "releases").stat().st_mode) == 0o755
    assert stat.S_IMODE(outer.stat().st_mode) == 0o777 & ~umask  # not ours to open
    assert {place.root, outer, outer / "releases"} <= set(synced)


def test_a_signed_folder_that_is_found_is_made_durable_before_it_is_recorded(
    make_workplace, monkeypatch, synced
):
    """Its builder may have died between the rename and the fsync."""
    run = ready(make_workplace(weights="none"))

    def killed(folder):
        if folder == run.directory:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        around(publication, "sync_directory", before=killed, replace=patch.setattr)
        with pytest.raises(KeyboardInterrupt):
            steps.publish(run)
    assert (run.directory / "built").exists()
    synced.clear()

    def recorded(*_):
        assert run.directory in synced

    around(Ledger, "publish", before=recorded, replace=monkeypatch.setattr)
    steps.publish(run)


def test_seeded_noise_cannot_be_published(workplace):
    run = ingested(workplace)
    steps.fit_generator(run, noise=SeededNoise(1))
    with pytest.raises(NotPublishableError):
        steps.draw_synthetic(run)


def test_post_processing_is_repeatable(workplace):
    run = draw(prepared(workplace))
    rows = (run.directory / "synthetic_rows.parquet").read_bytes()
    steps.debias(run)
    weights = (run.directory / "weights.json").read_bytes()
    steps.draw_synthetic(run)
    steps.debias(run)
    assert (run.directory / "synthetic_rows.parquet").read_bytes() == rows
    assert (run.directory / "weights.json").read_bytes() == weights


def test_weights_that_are_not_worth_their_budget_leave_it_to_the_generator(workplace):
    workplace.rewrite("when_infeasible: keep", "when_infeasible: none")
    workplace.rewrite("epsilon: 2", "epsilon: 0.2")
    run = prepared(workplace)
    assert run.plan.weights is None
    assert not run.plan.forecast.feasible
    draw(run)
    release = loaded(finish(run))
    np.testing.assert_array_equal(release.weights, np.ones(300))
    assert release.certificate.verdict == "none"
    assert [stage.stage for stage in release.certificate.stages] == ["fit_generator"]
    assert run.plan.composed["pld"] > 0.2 * 0.999  # all of it, not half


@pytest.mark.slow
def test_a_release_built_under_a_replaced_key_is_signed_anew(workplace):
    """Built and signed, not yet published; then the key is replaced."""
    run = ready(workplace)
    blocker = workplace.releases / run.release_id
    blocker.mkdir(parents=True)
    with pytest.raises(ReleaseError):
        steps.publish(run)
    blocker.rmdir()
    keys = workplace.root / "state" / "keys"
    for name in ("test.key", "test.pub"):
        (keys / name).unlink()
    create_key_pair(keys, "test")
    assert verify(steps.publish(run), public_key=keys / "test.pub").pinned


def test_weights_are_fitted_on_rows_that_are_not_published(workplace):
    run = draw(prepared(workplace))
    names = ("synthetic_rows.parquet", "fitting_rows.parquet")
    published, fitting = (read_rows(run, name).scaled for name in names)
    assert published.rows == fitting.rows
    assert not published.equals(fitting)


@pytest.mark.slow
def test_unnormalised_weights_estimate_totals(workplace):
    text = workplace.spec.read_text()
    workplace.spec.write_text(
        text.replace("keep}", "keep, normalisation: unnormalised}").replace(": 2\n", ": 5\n")
    )
    run = draw(prepared(workplace))
    release = loaded(finish(run))
    np.testing.assert_allclose(release.weights, np.exp(release.log_weights))
    total = release.total(lambda table: table["age"] >= 0).value
    assert total == pytest.approx(400 * release.weights.mean())
    # 400 people; the total's logarithm has a standard deviation of 0.15 (14 releases): a factor
    # 2.2 is five of them
    assert 400 / 2.2 < total < 400 * 2.2
    assert release.certificate.post_processing == ("debias b(x)",)


@pytest.mark.parametrize("how", ["cut", "columns"])
def test_damaged_rows_are_named_and_not_taken_for_confidential_ones(make_workplace, how):
    run = ready(make_workplace(weights="none"))
    path = run.directory / "synthetic_rows.parquet"
    if how == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    else:
        table = pq.read_table(path)
        pq.write_table(table.rename_columns([f"z{n}" for n in range(table.num_columns)]), path)
    with pytest.raises(ReleaseError, match=r"synthetic_rows.parquet: damaged; remove it"):
        steps.publish(run)
    path.unlink()
    steps.draw_synthetic(run)
    steps.debias(run)
    assert verify(steps.publish(run))


@pytest.mark.slow
def test_damaged_rows_are_found_before_measured_weights_are_armed(make_workplace):
    """Their ranges are read first: nothing is drawn, and nothing is lost. Then the run goes on."""
    weights = "measured, settings: {frequencies: 20, omega_seed: 1, base_rows: 2000}"
    run, noise = ingested(make_workplace(weights=weights)), SecureNoise()
    steps.fit_generator(run, noise=noise)
    steps.draw_synthetic(run)
    path = run.directory / "synthetic_rows.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:200] + bytes(byte ^ 255 for byte in whole[200:2000]) + whole[2000:])
    with pytest.raises(ReleaseError, match=r"synthetic_rows.parquet: damaged; remove it"):
        steps.fit_weights(run, noise=noise)
    stage = run.open_ledger().run(run.key).stages["fit_weights"]
    assert stage.state is StageState.RESERVED
    path.unlink()
    steps.draw_synthetic(run)
    steps.fit_weights(run, noise=noise)
    drawn = verify(finish(run)).certificate.diagnostics["measured"]
    assert set(drawn["ranges"]) <= {column.name for column in run.plan.schema.released}


@pytest.mark.slow
def test_killed_between_parts_nothing_is_published_and_the_rows_stay(workplace, monkeypatch):
    """Rows are read in batches of 64 and published in parts of 100, whatever was interrupted."""
    run = ready(workplace)
    whole = read_rows(run, "synthetic_rows.parquet").frame()
    chosen = np.load(run.directory / "weights.npz")["chosen"]
    for module in (parquet, publish):
        monkeypatch.setattr(module, "PART_ROWS", 100)
    monkeypatch.setattr(snapshots, "BATCH_ROWS", 64)
    with monkeypatch.context() as patch:
        done = []

        def killed(path, *_, **__):
            if done:
                raise KeyboardInterrupt
            done.append(path.name)

        around(parquet, "write_table", before=killed, replace=patch.setattr)
        with pytest.raises(KeyboardInterrupt):
            steps.publish(run)
    assert done == ["synthetic-00001-of-00003.parquet"]
    assert not (run.directory / "built").exists()
    assert not list(workplace.releases.glob("*"))
    folder = steps.publish(run)
    bytes_of = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {path.name for path in folder.glob("*.parquet")} == set(row_files(3))
    assert steps.publish(run) == folder
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == bytes_of
    rows = [
        sorted(frame.itertuples(index=False, name=None), key=repr)
        for frame in (loaded(folder).table, whole.iloc[chosen])
    ]
    assert repr(rows[0]) == repr(rows[1])
