"""Imports only point inwards: the contracts never reach for verl, Ray, an engine, MLflow, or our own adapters."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
RING = ROOT / "recipe" / "agent_contracts"
OUTSIDE = {"verl", "ray", "vllm", "sglang", "mlflow"}
ADAPTERS = "verl_ext"
MAY_LOAD_ADAPTERS = {"cli.py"}
"""Files, relative to the ring, that may import `verl_ext`, and only inside a function."""

MODULES = sorted(RING.rglob("*.py"))


class Import(NamedTuple):
    """One imported name: its top-level package, its line, and whether it runs when the module is imported."""

    package: str
    line: int
    eager: bool


def imports(source: str) -> Iterator[Import]:
    """Every absolute import of a module, and the constant argument of every `import_module` call."""
    yield from _walk(ast.parse(source), eager=True)


def _walk(node: ast.AST, eager: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        for name in _names(child):
            yield Import(name.partition(".")[0], child.lineno, eager)
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _walk(child, eager and not is_function)


def _names(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(module), level=0):
            return [module]
        case ast.Call(
            func=ast.Attribute(attr="import_module" | "__import__"), args=[ast.Constant(value=str(name)), *_]
        ):
            return [name]
        case ast.Call(func=ast.Name(id="import_module" | "__import__"), args=[ast.Constant(value=str(name)), *_]):
            return [name]
    return []


def test_the_ring_is_there() -> None:
    assert MODULES, f"no module below {RING}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(RING)))
def test_contracts_never_import_the_host(path: Path) -> None:
    found = [f"{path}:{line} imports {name}" for name, line, _ in imports(path.read_text()) if name in OUTSIDE]
    assert not found, "move it to verl_ext/: " + "; ".join(found)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(RING)))
def test_adapters_are_loaded_only_by_declared_files_and_lazily(path: Path) -> None:
    declared = str(path.relative_to(RING)) in MAY_LOAD_ADAPTERS
    wrong = [
        f"{path}:{line}"
        for name, line, eager in imports(path.read_text())
        if name == ADAPTERS and (eager or not declared)
    ]
    assert not wrong, f"import {ADAPTERS} inside a function of one of {sorted(MAY_LOAD_ADAPTERS)}: {wrong}"


def test_the_walk_sees_every_kind_of_import() -> None:
    source = (
        "import verl.trainer as t\n"
        "from ray import get\n"
        "from . import mlflow\n"
        "import vllm_like, verl_ext.plugin\n"
        "def f():\n"
        "    from sglang.srt import x\n"
        "    import importlib; importlib.import_module('vllm.config')\n"
    )
    assert list(imports(source)) == [
        Import("verl", 1, True),
        Import("ray", 2, True),
        Import("vllm_like", 4, True),
        Import("verl_ext", 4, True),
        Import("sglang", 6, False),
        Import("importlib", 7, False),
        Import("vllm", 7, False),
    ]
