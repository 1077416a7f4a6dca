"""Every command in the docs exists and takes the options it is shown with; links point to files.

What the commands do is tested elsewhere: the end-to-end tests run the smoke script, resume, replay, heldout, export and
rollout; `scripts/test.sh` is how this test runs.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md")])
BLOCK = re.compile(r"```bash\n(.*?)```", re.DOTALL)


def commands() -> list[str]:
    lines = [line for page in PAGES for block in BLOCK.findall(page.read_text()) for line in block.splitlines()]
    return sorted({line.split("  #")[0].split(" #")[0].strip() for line in lines if line.strip()})


def words_of(command: str) -> list[str]:
    words = shlex.split(re.sub(r"<[^>]+>", "X", command.replace("$PWD", ".")))
    return [word for word in words if not re.fullmatch(r"[A-Z_]+=\S*", word)]


@pytest.mark.parametrize("command", commands())
def test_a_command_in_the_docs_exists_and_takes_its_options(command):
    words = words_of(command)
    if words[0] == "bash":
        assert (REPOSITORY / words[1]).is_file()
        return
    program = REPOSITORY / words[0]
    assert program.exists(), f"{words[0]} is not in the environment that scripts/setup.sh makes"
    subcommand = [words[1]] if not words[1].startswith("-") else []
    shown = help_of(program, subcommand)
    if "COMMAND [ARGS]" in shown:
        shown = help_of(program, words[1:3])
    for word in words:
        if word.startswith("--"):
            assert word.partition("=")[0] in shown


def help_of(program: Path, subcommand: list[str]) -> str:
    shown = subprocess.run(
        [program, *subcommand, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=REPOSITORY,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert shown.returncode == 0, shown.stderr
    return shown.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_a_page_point_to_files(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_dry_run_of_the_gpu_script_composes_and_is_consistent():
    result = subprocess.run(
        ["bash", "scripts/run_qwen2_5_1_5b_lora_vllm.sh"],
        cwd=REPOSITORY,
        env={**os.environ, "DRY_RUN": "1", "PYTHON": ".venv/bin/python"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert "configuration is consistent" in result.stdout
