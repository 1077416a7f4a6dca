"""docs/compatibility.md against the installed verl: every named symbol exists, every import of verl_ext is named."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest
import verl

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "compatibility.md").read_text()


def named_symbols() -> list[str]:
    return sorted({name for name in re.findall(r"`(verl(?:\.\w+)+)`", PAGE) if name != "verl.plugins"})


def imported_symbols() -> set[tuple[str, str]]:
    found = set()
    for path in (REPOSITORY / "verl_ext").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "verl":
                found |= {(node.module, alias.name) for alias in node.names}
    return found


def resolve(name: str) -> object:
    module, _, attribute = name.rpartition(".")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return getattr(importlib.import_module(module), attribute)


def test_this_is_the_verl_that_was_read():
    assert verl.__version__ == "0.9.1"


@pytest.mark.parametrize("name", named_symbols())
def test_a_symbol_named_in_the_docs_exists(name):
    resolve(name)


def test_every_verl_symbol_we_import_is_named_in_the_docs():
    unnamed = sorted(f"{module}.{name}" for module, name in imported_symbols() if not re.search(rf"\b{name}\b", PAGE))
    assert unnamed == []
