"""What a run reads is checked before anything starts: the model folder, the data files, the prompts, a port."""

from __future__ import annotations

import copy
import json
import socket
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recipe.agent_contracts.config import preflight
from recipe.agent_contracts.config.experiment import load_experiment
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.transition.envs.terminal.dataset import DatasetSize, write_dataset


def row(name: str, split: str, **extra) -> dict:
    task = {"task_id": name, "step_budget": 8, "token_budget": 320}
    info = {"task_id": name, "family": f"f-{split}", "template": f"t-{split}", "seed": 1, "task": json.dumps(task)}
    return {
        "prompt": [{"role": "user", "content": "go"}],
        "agent_name": "contract_agent",
        "data_source": f"terminal/{split}",
        "reward_model": {"style": "rule", "ground_truth": "{}"},
        "extra_info": {**info, **extra},
    }


def write(path: Path, rows: list[dict]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.fixture
def experiment(changed):
    return load_experiment(changed({"contract.update.tasks_per_batch": 2})["contract"])


@pytest.fixture
def train(tmp_path) -> Path:
    return write(tmp_path / "train.parquet", [row(f"train-{index}", "train") for index in range(4)])


@pytest.fixture
def heldout(tmp_path) -> Path:
    return write(tmp_path / "heldout.parquet", [row(f"heldout-{index}", "heldout") for index in range(2)])


def violation(check, *arguments) -> ContractViolation:
    with pytest.raises(ContractViolation) as caught:
        check(*arguments)
    return caught.value


class TestData:
    def test_sound_files_pass(self, train, heldout, experiment):
        preflight.check_data(train, heldout, experiment)

    def test_what_the_generator_writes_passes(self, tmp_path, experiment):
        paths = write_dataset(tmp_path, DatasetSize(num_train=8, num_heldout=4), seed=0)
        preflight.check_data(*paths, experiment)

    def test_a_missing_file_is_named(self, tmp_path, heldout, experiment):
        error = violation(preflight.check_data, tmp_path / "none.parquet", heldout, experiment)
        assert error.contract == "preflight.data"
        assert "none.parquet" in error.evidence
        assert "terminal_tasks.py" in error.remedy

    def test_a_file_that_is_no_parquet_is_named(self, tmp_path, heldout, experiment):
        broken = tmp_path / "broken.parquet"
        broken.write_text("not parquet")
        assert "Arrow" in str(violation(preflight.check_data, broken, heldout, experiment))

    def test_an_empty_file_is_refused(self, tmp_path, train, heldout, experiment):
        empty = tmp_path / "empty.parquet"
        pq.write_table(pq.read_table(train).slice(0, 0), empty)
        assert "at least one row" in str(violation(preflight.check_data, empty, heldout, experiment))

    @pytest.mark.parametrize("column", ["prompt", "agent_name", "data_source", "reward_model", "extra_info"])
    def test_a_missing_column_is_named(self, tmp_path, heldout, experiment, column):
        rows = [{name: value for name, value in row("a", "train").items() if name != column}]
        path = write(tmp_path / "t.parquet", rows)
        assert f"no {column}" in str(violation(preflight.check_data, path, heldout, experiment))

    @pytest.mark.parametrize("field", ["task_id", "family", "template", "seed", "task"])
    def test_a_missing_field_of_extra_info_is_named(self, tmp_path, heldout, experiment, field):
        path = write(tmp_path / "t.parquet", [row("a", "train"), row("b", "train", **{field: None})])
        assert f"no {field} in row 1" in str(violation(preflight.check_data, path, heldout, experiment))

    def test_a_task_that_is_no_json_is_named(self, tmp_path, heldout, experiment):
        path = write(tmp_path / "t.parquet", [row("a", "train", task="{")])
        assert "in task a" in str(violation(preflight.check_data, path, heldout, experiment))

    def test_a_repeated_task_is_named(self, tmp_path, heldout, experiment):
        path = write(tmp_path / "t.parquet", [row("a", "train"), row("b", "train"), row("b", "train")])
        assert "task_id b 2 times" in str(violation(preflight.check_data, path, heldout, experiment))

    def test_one_task_for_each_decoding_is_no_repetition(self, tmp_path, train, experiment):
        rows = [row("h", "heldout", decoding=decoding) for decoding in ("temperature_1", "greedy")]
        preflight.check_data(train, write(tmp_path / "h.parquet", rows), experiment)

    @pytest.mark.parametrize(
        ("field", "rule"), [("family", "environment_family_disjoint"), ("template", "template_disjoint")]
    )
    def test_the_first_shared_family_or_template_is_named(self, tmp_path, train, changed, field, rule):
        rows = [row("h0", "heldout"), row("h1", "heldout", **{field: f"{field[0]}-train"})]
        path = write(tmp_path / "h.parquet", rows)
        small = {"contract.update.tasks_per_batch": 2}
        error = violation(preflight.check_data, train, path, load_experiment(changed(small)["contract"]))
        assert f"{field} {field[0]}-train" in str(error)
        assert f"contract.evaluation.{rule}=true" in str(error)
        allowed = load_experiment(changed({**small, f"contract.evaluation.{rule}": False})["contract"])
        preflight.check_data(train, path, allowed)

    def test_a_task_in_both_files_is_named(self, tmp_path, train, experiment):
        path = write(tmp_path / "h.parquet", [row("train-3", "heldout")])
        assert "task_id train-3" in str(violation(preflight.check_data, train, path, experiment))

    def test_too_few_rows_for_a_batch(self, train, heldout, changed):
        experiment = load_experiment(changed({"contract.update.tasks_per_batch": 5})["contract"])
        assert "tasks_per_batch=5" in str(violation(preflight.check_data, train, heldout, experiment))

    @pytest.mark.parametrize(("key", "found"), [("train_tasks", 4), ("heldout_tasks", 2)])
    def test_a_declared_number_of_tasks_is_counted(self, train, heldout, changed, key, found):
        small = {"contract.update.tasks_per_batch": 2}
        declared = f"contract.environment.{key}"
        preflight.check_data(train, heldout, load_experiment(changed({**small, declared: found})["contract"]))
        experiment = load_experiment(changed({**small, declared: 48})["contract"])
        assert f"{declared}=48 tasks, found {found}" in str(violation(preflight.check_data, train, heldout, experiment))

    def test_budgets_of_the_task_are_those_of_the_experiment(self, tmp_path, heldout, experiment):
        task = json.dumps({"step_budget": 8, "token_budget": 99})
        path = write(tmp_path / "t.parquet", [row("a", "train"), row("b", "train", task=task)])
        error = violation(preflight.check_data, path, heldout, experiment)
        assert "contract.environment.token_budget=320" in str(error)
        assert "token_budget=99 in task b" in str(error)

    def test_a_row_may_not_ask_for_another_group_size(self, tmp_path, heldout, experiment):
        rows = [{**row(name, "train"), "__rollout_n__": 4} for name in "ab"]
        path = write(tmp_path / "t.parquet", rows)
        assert "contract.rollout.group_size=8" in str(violation(preflight.check_data, path, heldout, experiment))

    def test_a_row_may_not_ask_for_other_attempts(self, tmp_path, train, experiment):
        path = write(tmp_path / "h.parquet", [{**row("h", "heldout"), "__rollout_n__": 5}])
        assert "attempts_per_task=3" in str(violation(preflight.check_data, train, path, experiment))

    @pytest.mark.parametrize(
        ("train_date", "heldout_date", "found"),
        [
            ("2026-05-31", "2026-06-01", None),
            ("2026-06-01", "2026-06-01", "2026-06-01 in task a"),
            ("2026-05-31", "2026-05-31", "2026-05-31 in task h"),
            ("2026-05-31", None, "no date in task h"),
            ("May", "2026-06-01", "May in task a"),
        ],
    )
    def test_a_declared_cutoff_lies_between_the_files(self, tmp_path, changed, train_date, heldout_date, found):
        train = write(
            tmp_path / "t.parquet", [row("a", "train", date=train_date), row("b", "train", date="2025-01-01")]
        )
        heldout = write(tmp_path / "h.parquet", [row("h", "heldout", date=heldout_date)])
        small = {"contract.update.tasks_per_batch": 2}
        preflight.check_data(train, heldout, load_experiment(changed(small)["contract"]))
        declared = {**small, "contract.evaluation.temporal_cutoff": "2026-06-01"}
        experiment = load_experiment(changed(declared)["contract"])
        if found is None:
            preflight.check_data(train, heldout, experiment)
            return
        error = violation(preflight.check_data, train, heldout, experiment)
        assert "contract.evaluation.temporal_cutoff=2026-06-01" in str(error)
        assert found in str(error)


class TestPrompts:
    def test_prompts_that_fit_pass(self, train):
        preflight.check_prompt_lengths(train, 7, lambda row: 7)

    def test_the_first_that_does_not_fit_is_named(self, train):
        def count(row: dict) -> int:
            return 5 + int(row["extra_info"]["task_id"][-1])

        error = violation(preflight.check_prompt_lengths, train, 6, count)
        assert error.contract == "preflight.prompt_length"
        assert "7 tokens in task train-2, the first of 2" in str(error)
        assert "data.max_prompt_length=8" in error.remedy


@pytest.fixture
def model(tmp_path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "qwen2"}')
    (folder / "model.safetensors").write_bytes(b"")
    return folder


@pytest.fixture
def tokenizer(tmp_path) -> Path:
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "TokenizersBackend"}')
    return folder


class TestModel:
    def test_a_model_and_a_tokenizer_pass(self, model, tokenizer):
        preflight.check_model(str(model), str(tokenizer))

    @pytest.mark.parametrize("path", ["/no/such/model", "no-such-model", "./models/a/b", "a/b/c", ""])
    def test_a_path_that_does_not_exist_is_named(self, path):
        error = violation(preflight.check_model, path, None)
        assert error.contract == "preflight.model"
        assert "actor_rollout_ref.model.path" in str(error)
        assert path in str(error)

    def test_a_mistyped_relative_path_is_no_hub_name(self, model, monkeypatch):
        monkeypatch.chdir(model.parent.parent)
        path = f"{model.parent.name}/modle"
        assert path in str(violation(preflight.check_model, path, None))

    @pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
    def test_an_incomplete_folder_says_what_is_missing(self, model, tokenizer, name):
        (model / name).unlink()
        assert f"no {'*.safetensors' if 'safe' in name else name}" in str(
            violation(preflight.check_model, str(model), str(tokenizer))
        )

    def test_a_tokenizer_that_would_be_replaced_is_refused(self, model, tokenizer):
        (tokenizer / "config.json").write_text('{"model_type": "qwen2"}')
        error = violation(preflight.check_model, str(model), str(tokenizer))
        assert error.contract == "preflight.tokenizer"
        assert "no config.json" in error.remedy

    def test_the_same_beside_the_weights(self, model, tokenizer):
        for file in tokenizer.iterdir():
            (model / file.name).write_bytes(file.read_bytes())
        assert violation(preflight.check_model, str(model), None).contract == "preflight.tokenizer"

    def test_a_tokenizer_of_the_models_own_class_may_lie_beside_the_weights(self, model):
        (model / "tokenizer.json").write_text("{}")
        (model / "tokenizer_config.json").write_text('{"tokenizer_class": "Qwen2Tokenizer"}')
        preflight.check_model(str(model), None)

    def test_a_model_without_tokenizer_says_where_to_name_one(self, model):
        assert "tokenizer_path" in violation(preflight.check_model, str(model), None).remedy


class TestHub:
    @pytest.fixture(autouse=True)
    def hub(self, monkeypatch, tmp_path):
        for name in (*preflight.OFFLINE, "HF_HUB_CACHE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))

    def test_a_hub_name_passes(self):
        preflight.check_model("Qwen/Qwen2.5-1.5B-Instruct", None)

    def test_offline_it_must_be_cached(self, monkeypatch, tmp_path):
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        error = violation(preflight.check_model, "Qwen/Qwen2.5-1.5B-Instruct", None)
        assert "HF_HUB_OFFLINE" in str(error)
        (tmp_path / "hf/hub/models--Qwen--Qwen2.5-1.5B-Instruct/snapshots/abc").mkdir(parents=True)
        preflight.check_model("Qwen/Qwen2.5-1.5B-Instruct", None)


class TestPort:
    def test_a_free_port_passes(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        preflight.check_port_free(port, "some.port")

    def test_an_occupied_port_is_named(self):
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()
            port = server.getsockname()[1]
            error = violation(preflight.check_port_free, port, "some.port")
        assert error.contract == "preflight.port"
        assert f"some.port={port}" in str(error)
        assert "Ray" in error.remedy


def test_errors_survive_pickling(train, heldout, experiment):
    import pickle

    error = violation(preflight.check_prompt_lengths, train, 1, lambda row: 2)
    assert str(pickle.loads(pickle.dumps(copy.copy(error)))) == str(error)
