"""run_controls.sh: every arm is a run of its own from shared settings, and a second start repeats what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OUT = Path("runs/controls/2026-12-07")
AGENT_CONTRACTS = """#!/usr/bin/env bash
IFS=$'\t'
echo "$*" >>ran
case $1 in
  policy) echo /policy ;;
  sft-only) mkdir -p "$3/model" ;;
  train) mkdir -p "$3"; echo "$*" >"$3/experiment.yaml"; [[ ! -e broken || $3 != */shuffled_2 ]] ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The script beside stand-ins for what it runs; `agent-contracts` writes its arguments to `ran`."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "run_controls.sh", tmp_path / "scripts")
    stubs = {"scripts/setup.sh": "", "scripts/cold_start.sh": "", "venv/bin/python": "#!/usr/bin/env bash\n"}
    for path, text in {**stubs, "venv/bin/agent-contracts": AGENT_CONTRACTS}.items():
        (tmp_path / path).write_text(text)
        (tmp_path / path).chmod(0o755)
    return tmp_path


def start(checkout: Path, *overrides: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "VENV": "venv", "DATE": "2026-12-07", **settings}
    command = ["bash", "scripts/run_controls.sh", *overrides]
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=60)


def trainings(checkout: Path) -> dict[str, list[str]]:
    """Overrides of each training by its run folder's name, in order."""
    lines = [line.split("\t") for line in (checkout / "ran").read_text().splitlines()]
    return {Path(words[2]).name: words[3:] for words in lines if words[0] == "train"}


def test_every_arm_is_a_run_of_its_own_and_the_comparison_comes_last(checkout: Path) -> None:
    done = start(checkout, "contract.update.kl_beta=0.05")
    assert done.returncode == 0, done.stderr
    arms = trainings(checkout)
    assert list(arms) == [
        *("frozen", "frozen_again", "normal", "shuffled_1", "shuffled_2", "shuffled_3", "sft_only"),
    ]
    assert all(words[-1] == "contract.update.kl_beta=0.05" for words in arms.values()), "the user's overrides win"
    assert (checkout / "ran").read_text().splitlines()[-1] == f"controls\t{OUT}"


def test_arms_differ_in_nothing_but_their_control(checkout: Path) -> None:
    """Hydra takes the last of two overrides of one key, so what an arm adds stands behind what all share."""
    start(checkout)
    arms = {name: dict(word.split("=", 1) for word in words) for name, words in trainings(checkout).items()}
    normal = arms["normal"]
    differ = {
        name: {key: value for key, value in found.items() if normal.get(key) != value} for name, found in arms.items()
    }
    assert differ["frozen"] == {"contract.evaluation.control": "frozen"}
    assert differ["frozen_again"] == {
        "contract.evaluation.control": "frozen",
        "actor_rollout_ref.rollout.seed": "43",
    }
    assert differ["shuffled_3"] == {
        "contract.evaluation.control": "shuffled_rewards",
        "contract.evaluation.shuffle_seed": "3",
        "trainer.total_training_steps": "20",
        "trainer.save_freq": "20",
        "trainer.val_before_train": "false",
    }
    assert differ["sft_only"] == {
        "contract.evaluation.control": "sft_only",
        "actor_rollout_ref.model.path": str(checkout / OUT / "policies/sft_only/model"),
    }


def test_a_second_start_repeats_only_what_is_missing_and_keeps_what_was_begun(checkout: Path) -> None:
    (checkout / "broken").touch()
    assert start(checkout).returncode == 1
    assert list(trainings(checkout))[-1] == "shuffled_2"
    (checkout / "broken").unlink()
    (checkout / "ran").unlink()
    done = start(checkout)
    assert done.returncode == 0, done.stderr
    assert list(trainings(checkout)) == ["shuffled_2", "shuffled_3", "sft_only"]
    assert "normal] done before" in done.stdout
    (kept,) = (checkout / OUT / "unfinished").iterdir()
    assert kept.name.startswith("shuffled_2-")


def test_small_is_the_same_script_on_little(checkout: Path) -> None:
    assert start(checkout, SMALL="1").returncode == 0
    arms = trainings(checkout)
    assert list(arms) == ["frozen", "frozen_again", "normal", "shuffled_1", "sft_only"]
    assert all("data.val_max_samples=40" in words for words in arms.values())
    assert (checkout / f"{OUT}-small" / "normal.done").exists()
