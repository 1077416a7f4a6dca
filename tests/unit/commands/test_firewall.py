"""`agent-contracts firewall`: exit codes, what it writes, and what it sees of a run."""

import json

import msgspec
import pytest
import yaml
from typer.testing import CliRunner

from recipe.agent_contracts.cli import app
from recipe.agent_contracts.policy.scaffold_lock import lock_of, read_lock, write_lock
from recipe.agent_contracts.transition.envs.terminal.dataset import (
    HELDOUT_CANARY,
    DatasetSize,
    find_row,
    write_dataset,
)
from recipe.agent_contracts.transition.snapshots import BlobStore
from tests.unit.commands.conftest import write
from tests.unit.evaluation.firewall import rows


def call(*arguments):
    return CliRunner().invoke(app, ["firewall", *map(str, arguments)])


@pytest.fixture
def files(tmp_path):
    return write_dataset(tmp_path / "data", DatasetSize(num_train=12, num_heldout=4), seed=3)


@pytest.fixture
def experiment(recorded, files):
    """A run folder with its files, its lock and its recorded episodes, yet to be written."""
    folder, episodes = recorded
    config = {
        "data": {"train_files": str(files[0]), "val_files": str(files[1])},
        "contract": {"evaluation": {"temporal_cutoff": None}},
    }
    (folder / "experiment.yaml").write_text(yaml.safe_dump(config))
    write_lock(folder, lock_of("sha256:0", {}))
    return folder, episodes


def checks_of(path):
    return {check["name"]: check for check in json.loads(path.read_text())["checks"]}


def test_files_that_are_apart_end_with_0_and_the_audit_is_written(files, tmp_path):
    out = tmp_path / "deep" / "firewall.json"
    result = call(*files, "--out", out)
    assert result.exit_code == 0, result.output
    content = json.loads(out.read_text())
    assert content["passed"] is True
    assert content["scaffold_lock_hash"] is None
    assert content["network"]["terminal"]["allowed"] == []
    assert "Cost: Nothing can be looked up" in result.output


def test_a_leak_ends_with_1_and_is_named(tmp_path):
    leaked = rows.row("planted", "train", rows.HELDOUT_TEXTS[1])
    train = rows.write(tmp_path / "t.parquet", [*rows.train_rows(), leaked])
    heldout = rows.write(tmp_path / "h.parquet", rows.heldout_rows(), HELDOUT_CANARY)
    result = call(train, heldout, "--out", tmp_path / "f.json")
    assert result.exit_code == 1
    assert "task_text: held-out heldout-1 and train planted" in result.output
    assert "failed: task_text, wording, minhash_text" in result.output
    assert json.loads((tmp_path / "f.json").read_text())["passed"] is False


def test_a_cutoff_is_judged(tmp_path):
    train = rows.write(tmp_path / "t.parquet", [rows.row("a", "train", rows.TRAIN_TEXTS[0], date="2026-01-02")])
    heldout = rows.row("h", "heldout", rows.HELDOUT_TEXTS[0], date="2026-01-02")
    tested = rows.write(tmp_path / "h.parquet", [heldout], HELDOUT_CANARY)
    assert call(train, tested, "--cutoff", "2026-01-02").exit_code == 1
    assert "train a: 2026-01-02" in call(train, tested, "--cutoff", "2026-01-02").output
    assert call(train, tested).exit_code == 0


@pytest.mark.parametrize("arguments", [(), ("none.parquet",), ("none.parquet", "neither.parquet")])
def test_what_cannot_be_read_ends_with_2(arguments):
    assert call(*arguments).exit_code == 2


def test_a_date_that_is_none_ends_with_2(tmp_path):
    train = rows.write(tmp_path / "t.parquet", [rows.row("a", "train", rows.TRAIN_TEXTS[0], date="yesterday")])
    heldout = rows.write(tmp_path / "h.parquet", rows.heldout_rows(), HELDOUT_CANARY)
    assert call(train, heldout, "--cutoff", "2026-01-02").exit_code == 2


def test_an_unknown_domain_or_a_task_that_is_no_object_ends_with_2(tmp_path):
    heldout = rows.write(tmp_path / "h.parquet", rows.heldout_rows(), HELDOUT_CANARY)
    elsewhere = [{**each, "data_source": "nowhere/train"} for each in rows.train_rows()]
    assert call(rows.write(tmp_path / "a.parquet", elsewhere), heldout).exit_code == 2
    result = call(rows.write(tmp_path / "b.parquet", [rows.row("a", "train", "Go.", task="[]")]), heldout)
    assert (result.exit_code, "a JSON object in extra_info.task" in result.output) == (2, True)


def test_the_audit_of_a_run_names_its_lock_and_is_kept_in_it(experiment):
    folder, episodes = experiment
    write(folder, *episodes)
    result = call("--run", folder)
    assert result.exit_code == 0, result.output
    content = json.loads((folder / "audits" / "firewall.json").read_text())
    assert content["scaffold_lock_hash"] == read_lock(folder).lock_hash
    assert checks_of(folder / "audits" / "firewall.json")["canary_in_episodes"]["figure"] == "0 of 2 training episodes"


def test_a_training_episode_that_read_the_canary_is_named(experiment):
    folder, (first, second) = experiment
    told = msgspec.structs.replace(second[0], observation=f"see {HELDOUT_CANARY}", observation_ref=None)
    write(folder, first, [told, *second[1:]])
    assert call("--run", folder).exit_code == 1
    found = checks_of(folder / "audits" / "firewall.json")["canary_in_episodes"]
    assert (found["status"], found["evidence"]) == ("failed", ["g_1"])


@pytest.mark.parametrize("changes", [{"task_id": "train-1", "split": "train"}, {"token_budget": 9}])
def test_a_training_episode_of_a_held_out_task_is_named_by_content_or_by_id(experiment, changes):
    folder, (first, second) = experiment
    task = json.loads(find_row("heldout_known_style", 0, seed=3)["extra_info"]["task"]) | changes
    blob = BlobStore(folder / "blobs").put(json.dumps(task).encode())
    who = msgspec.structs.replace(second[0].episode, task_hash=blob, task_id=task["task_id"])
    write(folder, first, [msgspec.structs.replace(turn, episode=who) for turn in second])
    assert call("--run", folder).exit_code == 1
    found = checks_of(folder / "audits" / "firewall.json")["heldout_in_episodes"]
    assert (found["figure"], found["evidence"]) == ("1 of 2 training episodes", [f"g_1 played {task['task_id']}"])


def test_evaluation_episodes_are_not_asked(experiment):
    folder, (first, _) = experiment
    who = msgspec.structs.replace(first[0].episode, partition="val")
    write(folder, [msgspec.structs.replace(turn, episode=who, action_text=HELDOUT_CANARY) for turn in first])
    assert call("--run", folder).exit_code == 0
    found = checks_of(folder / "audits" / "firewall.json")["canary_in_episodes"]
    assert (found["status"], found["figure"]) == ("not_applicable", "the run has no training episode")


def test_the_cutoff_of_a_run_is_what_its_experiment_declares(experiment, tmp_path):
    folder, episodes = experiment
    write(folder, *episodes)
    train = rows.write(tmp_path / "t.parquet", [rows.row("a", "train", rows.TRAIN_TEXTS[0], date="2026-03-01")])
    heldout = rows.row("h", "heldout", rows.HELDOUT_TEXTS[0], date="2026-01-01")
    tested = rows.write(tmp_path / "h.parquet", [heldout], HELDOUT_CANARY)
    config = {
        "data": {"train_files": str(train), "val_files": str(tested)},
        "contract": {"evaluation": {"temporal_cutoff": "2026-02-01"}},
    }
    (folder / "experiment.yaml").write_text(yaml.safe_dump(config))
    assert call("--run", folder, "--cutoff", "2026-02-01").exit_code == 2
    assert call("--run", folder).exit_code == 1
    evidence = checks_of(folder / "audits" / "firewall.json")["temporal_cutoff"]["evidence"]
    assert evidence == ["train a: 2026-03-01", "held-out h: 2026-01-01"]


def test_a_run_without_a_lock_cannot_be_published(experiment):
    folder, episodes = experiment
    write(folder, *episodes)
    (folder / "scaffold.json").unlink()
    assert call("--run", folder).exit_code == 2
    assert not (folder / "audits" / "firewall.json").exists()


def test_a_folder_that_is_no_run_ends_with_2(tmp_path):
    assert call("--run", tmp_path).exit_code == 2
