"""Trusted code never unpickles and never decompresses: what an agent left is JSON or raw bytes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FORBIDDEN = {
    *("pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal"),
    *("zipfile", "tarfile", "gzip", "bz2", "lzma", "zlib", "shutil.unpack_archive"),
}
FILES = sorted(
    path for part in ("verification", "transition") for path in (ROOT / "recipe/agent_contracts" / part).rglob("*.py")
)


def imported(source: str) -> set[str]:
    """Modules that a source imports, and attributes that it reads, as dotted names."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import():
                names |= {alias.name for alias in node.names}
            case ast.ImportFrom(module=str(module)):
                names |= {module} | {f"{module}.{alias.name}" for alias in node.names}
            case ast.Attribute(value=ast.Name(id=base), attr=attribute):
                names.add(f"{base}.{attribute}")
    return names


def test_the_walk_sees_every_kind_of_import():
    source = "import pickle\nfrom zlib import decompress\ndef f():\n    shutil.unpack_archive('a')"
    assert imported(source) & FORBIDDEN == {"pickle", "zlib", "shutil.unpack_archive"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_trusted_code_unpickles_or_decompresses(path: Path):
    assert not imported(path.read_text()) & FORBIDDEN
