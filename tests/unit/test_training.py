"""Starting a training: one folder holds one experiment, and a refused start leaves it free."""

import sys

import pytest
from rich.console import Console

from recipe.agent_contracts import training
from recipe.agent_contracts.errors import ConfigContradiction


@pytest.fixture
def launcher_says(monkeypatch):
    """A launcher that only writes what a started one writes, and ends with a code."""

    def install(code, folder=None):
        wrote = f"open(r'{folder}/experiment.yaml', 'w').close(); " if folder else ""
        monkeypatch.setattr(training, "_LAUNCHER", [sys.executable, "-c", f"{wrote}raise SystemExit({code})"])

    return install


def test_a_refused_start_can_be_tried_again_in_the_same_folder(launcher_says, tmp_path):
    console = Console(quiet=True)
    launcher_says(2)
    assert training.train(["a=1"], tmp_path, console).exit_code == 2
    launcher_says(0, tmp_path)
    assert training.train(["a=2"], tmp_path, console).exit_code == 0
    assert (tmp_path / "overrides.json").read_text() == '["a=2"]'


def test_a_folder_that_holds_a_run_is_not_trained_in_again(launcher_says, tmp_path):
    launcher_says(0, tmp_path)
    training.train([], tmp_path, Console(quiet=True))
    with pytest.raises(ConfigContradiction, match="already holds a run"):
        training.train([], tmp_path, Console(quiet=True))


def test_only_a_folder_with_a_checkpoint_is_resumed(launcher_says, tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no run"):
        training.resume(tmp_path, [], Console(quiet=True))
    launcher_says(0, tmp_path)
    training.train([], tmp_path, Console(quiet=True))
    with pytest.raises(FileNotFoundError, match="holds no committed checkpoint"):
        training.resume(tmp_path, [], Console(quiet=True))
