"""The launcher: what is refused before a process starts, and what a resumed run may change."""

import socket

import pytest
from omegaconf import OmegaConf

from recipe.agent_contracts.cold_start.config import ColdStartConfig
from recipe.agent_contracts.cold_start.model import build_model
from recipe.agent_contracts.cold_start.tokenizer import build_tokenizer
from recipe.agent_contracts.errors import ConfigContradiction, ContractViolation, GuaranteeUnavailable
from recipe.agent_contracts.transition.envs.terminal.dataset import DatasetSize, write_dataset
from verl_ext import launch

PATHS = [
    "actor_rollout_ref.model.path=m",
    "actor_rollout_ref.model.tokenizer_path=t",
    "data.train_files=a",
    "data.val_files=b",
]


def test_the_cpu_platform_is_the_default_on_a_cpu_stack():
    assert launch.compose_config(PATHS).trainer.device == "cpu"
    assert launch.compose_config([*PATHS, "platform=gpu"]).trainer.device == "cuda"


def test_a_dry_run_checks_the_configuration_and_starts_nothing(capsys):
    launch.main(["--dry-run", *PATHS])
    assert "configuration is consistent" in capsys.readouterr().out


def test_a_contradiction_is_refused_with_both_keys_named(capsys):
    assert launch.main([*PATHS, "actor_rollout_ref.rollout.n=4"]) == 2
    refused = capsys.readouterr().err
    assert "contract.rollout.group_size" in refused
    assert "actor_rollout_ref.rollout.n" in refused


def test_a_model_path_that_does_not_exist_is_refused(capsys):
    assert launch.main(PATHS) == 2
    assert "preflight.model" in capsys.readouterr().err


@pytest.fixture
def complete_paths(tmp_path, monkeypatch):
    """Overrides that name a model and data files which exist, so that every check runs."""
    tokenizer = build_tokenizer()
    build_model(ColdStartConfig(), tokenizer).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    train, heldout = write_dataset(tmp_path, DatasetSize(num_train=16, num_heldout=2), seed=1)
    return [
        f"actor_rollout_ref.model.path={tmp_path}/model",
        f"actor_rollout_ref.model.tokenizer_path={tmp_path}/tokenizer",
        f"data.train_files={train}",
        f"data.val_files={heldout}",
        f"contract.run.folder={tmp_path}/run",
    ]


def test_a_machine_that_lacks_a_required_guarantee_refuses_to_start(tmp_path):
    required = "contract.verification.require_guarantees=[env_clean,inode_quota]"
    config = launch.compose_config([*PATHS, f"contract.run.folder={tmp_path}/run", required])
    with pytest.raises(GuaranteeUnavailable, match="inode_quota"):
        launch.check(config)
    assert not (tmp_path / "run").exists()


def test_a_guarantee_that_does_not_exist_is_refused_by_name(tmp_path):
    config = launch.compose_config([*PATHS, "contract.verification.require_guarantees=[no_such_thing]"])
    with pytest.raises(ConfigContradiction, match="no_such_thing"):
        launch.check(config)


def test_an_occupied_port_is_refused_before_anything_is_written(complete_paths, tmp_path, capsys):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        for overrides in (
            ["+ray_kwargs.ray_init.dashboard_port={port}", "ray_kwargs.ray_init.include_dashboard=True"],
            ["transfer_queue.metrics.enabled=True", "transfer_queue.metrics.port={port}"],
        ):
            chosen = [override.format(port=port) for override in overrides]
            assert launch.main([*complete_paths, *chosen]) == 2
            refused = capsys.readouterr().err
            assert "preflight.port" in refused
            assert f"port={port}" in refused
    assert not (tmp_path / "run").exists()


def test_a_scaffold_that_cannot_be_locked_leaves_no_experiment_behind(complete_paths, tmp_path, capsys):
    assert launch.main([*complete_paths, "actor_rollout_ref.rollout.dtype=auto"]) == 2
    assert "dtype=auto" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_what_every_check_accepts_is_preregistered(complete_paths, tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "run", lambda config: None)
    assert launch.main(complete_paths) == 0
    assert (tmp_path / "run" / "experiment.yaml").exists()


def test_a_prompt_over_the_length_is_refused(complete_paths, capsys):
    assert launch.main([*complete_paths, "data.max_prompt_length=20"]) == 2
    assert "preflight.prompt_length" in capsys.readouterr().err


def test_a_key_that_verl_does_not_know_is_refused(capsys):
    assert launch.main([*PATHS, "actor_rollout_ref.rollout.group=8"]) == 2
    assert "group" in capsys.readouterr().err


def test_the_experiment_is_written_once_and_a_resumed_run_may_only_go_on(tmp_path):
    config = launch.compose_config([*PATHS, f"contract.run.folder={tmp_path}"])
    launch.preregister(config, tmp_path)
    written = (tmp_path / "experiment.yaml").read_bytes()
    config.trainer.resume_mode = "auto"
    config.trainer.total_training_steps = 99
    launch.preregister(config, tmp_path)
    assert (tmp_path / "experiment.yaml").read_bytes() == written
    config.contract["update"].kl_beta = 0.5
    with pytest.raises(ConfigContradiction, match=r"from 0\.02 to 0\.5"):
        launch.preregister(config, tmp_path)


def test_a_run_whose_folder_was_renamed_may_go_on(tmp_path):
    launch.preregister(launch.compose_config([*PATHS, f"contract.run.folder={tmp_path}/a"]), tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    launch.preregister(launch.compose_config([*PATHS, f"contract.run.folder={tmp_path}/b"]), tmp_path / "b")


def test_a_users_environment_wins_and_their_modules_come_after_ours(monkeypatch, tmp_path):
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "my_tools")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    environment = launch.process_environment(tmp_path)
    assert environment["VERL_USE_EXTERNAL_MODULES"] == "verl_ext.plugin,my_tools"
    assert environment["MLFLOW_TRACKING_URI"] == "http://127.0.0.1:5000"
    assert environment["AGENT_CONTRACTS_RUN_FOLDER"] == str(tmp_path)


@pytest.mark.parametrize("lines", ["", '{"step": 2, "data": {}}\n'])
def test_a_run_that_ends_without_its_last_step_is_an_error(monkeypatch, tmp_path, lines):
    """Case H08: a resumed run whose loader is exhausted exits at once, clean, with no new step."""
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text(lines)
    monkeypatch.setenv("VERL_FILE_LOGGER_PATH", str(metrics))
    with pytest.raises(ContractViolation, match="3 optimizer steps"):
        launch._require_all_steps(tmp_path, 3)


def test_composed_values_survive_the_trip_through_plain_containers():
    config = launch.compose_config(PATHS)
    assert OmegaConf.create(launch.plain(config)).contract.rollout.group_size == 8
