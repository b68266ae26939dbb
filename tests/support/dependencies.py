"""The code that a script of benchmarks/ depends on: its files, and a digest of what they do.

Files are the script and what it imports of ours, reads or starts, imports of imports included.
Python counts by its syntax tree, without docstrings, the texts of raised errors and imports from
`__future__`: neither these nor comments and layout can change a figure. Nor do versions of
libraries count.
"""

import ast
import hashlib
import io
import subprocess
import tarfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("benchmarks/", "dpiw/", "flows/", "tasks/", "tests/support/", "examples/")
KINDS = (".py", ".yaml", ".txt")
STARTED = {
    "benchmarks/bench_limits.py": "flows/",
    "benchmarks/marginal_peers.py": "benchmarks/peers/",
}
"""Scripts that start the files of a folder, by names that are not in the script."""

LEFT_OUT = ("benchmarks/provenance.py", "dpiw/__init__.py")
"""What writes the stamps; our version, and two names that are resolved on first use."""

Tree = Mapping[str, str]
"""Text of each file by its path from the root."""


def present() -> Tree:
    """The files on the disk."""
    paths = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    return {p.relative_to(ROOT).as_posix(): p.read_text() for p in paths if p.suffix in KINDS}


@cache
def committed(commit: str) -> Tree:
    """The files of a commit; CalledProcessError if Git does not have it."""
    done = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        files = {member.name: archive.extractfile(member) for member in archive}
        wanted = (n for n in files if n.startswith(FOLDERS) and n.endswith(KINDS))
        return {name: file.read().decode() for name in wanted if (file := files[name])}


def _is_docstring(node: object) -> bool:
    """Of a module, a class, a function or a constant."""
    is_bare = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_bare and isinstance(node.value.value, str)


def _does_nothing(node: object) -> bool:
    return _is_docstring(node) or getattr(node, "module", None) == "__future__"


def _plain(node: object, is_raised: bool = False) -> str:
    """A syntax tree as text, the same from every version of Python; `ast.dump` differs."""
    if isinstance(node, list):
        return f"[{','.join(_plain(item, is_raised) for item in node if not _does_nothing(item))}]"
    if is_raised and isinstance(node, ast.Constant) and isinstance(node.value, str):
        return "text"
    if not isinstance(node, ast.AST):
        return repr(node)
    is_raised = is_raised or isinstance(node, ast.Raise)
    fields = ((name, value) for name, value in ast.iter_fields(node) if value not in (None, []))
    shown = (f"{name}={_plain(value, is_raised)}" for name, value in fields)
    return f"{type(node).__name__}({','.join(shown)})"


@cache
def digest(path: str, text: str) -> str:
    """Of what a file of Python does; of the text of another file."""
    plain = _plain(ast.parse(text)) if path.endswith(".py") else text
    return hashlib.sha256(plain.encode()).hexdigest()


@cache
def _named(text: str) -> tuple[str, ...]:
    """Paths of files that a file of Python may import, read or start."""
    nodes = [*ast.walk(ast.parse(text))]
    docstrings = {node.value for node in nodes if _is_docstring(node)}
    modules, paths = list[str](), list[str]()
    for node in nodes:
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Constant) and node not in docstrings:
            words = str(node.value).split()  # a schema's path; `-m dpiw.run.process`
            paths += [word for word in words if word.endswith(KINDS)]
            modules += [word for word in words if word.startswith("dpiw.")]
    stems = [module.replace(".", "/") for module in modules]
    paths += [f"{stem}{end}" for stem in stems for end in (".py", "/__init__.py")]
    return (*paths, *(f"benchmarks/{stem}.py" for stem in stems))


def files_of(script: str, tree: Tree) -> dict[str, str]:
    """Digest of each file that a script depends on, by path."""
    digests, left = dict[str, str](), [f"benchmarks/{script}.py"]
    while left:
        path = left.pop()
        if path in tree and path not in {*digests, *LEFT_OUT}:
            digests[path] = digest(path, tree[path])
            left += _named(tree[path]) if path.endswith(".py") else ()
            left += (other for other in tree if other.startswith(STARTED.get(path, "?")))
    return digests


def code(files: Mapping[str, str]) -> str:
    """One digest of all files."""
    lines = (f"{path} {own}\n" for path, own in sorted(files.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


def changed(files: Mapping[str, str], then: Tree, now: Tree) -> set[str]:
    """Those of the files that did something else then, or did not exist.

    A script that depended on others then is one of them, as its imports count.
    """
    differ = {path for path in files if then.get(path) != now[path]}
    return {p for p in differ if p not in then or digest(p, then[p]) != files[p]}
