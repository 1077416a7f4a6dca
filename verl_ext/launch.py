"""The launcher: compose, check, preregister, then start verl's own trainer.

    python -m verl_ext.launch [--dry-run] [hydra overrides...]

Nothing starts before the configuration, the model, the data and the registrations are in order. The resolved
configuration is written to the run folder first; verl and Ray then run as they always do.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from recipe.agent_contracts.canonical import sha256_json
from recipe.agent_contracts.config import bindings, preflight, renamed
from recipe.agent_contracts.config.experiment import Experiment
from recipe.agent_contracts.errors import ConfigContradiction, ContractViolation
from recipe.agent_contracts.training import metrics_path
from recipe.agent_contracts.transition.snapshots import write_atomically
from recipe.agent_contracts.verification.clean_room import open_room
from verl_ext import platform_cpu, plugin, report, scaffold, tracing

PROCESS_ENVIRONMENT = {
    # verl hides a failing entry point; a module named here raises instead.
    "VERL_USE_EXTERNAL_MODULES": "verl_ext.plugin",
    "HYDRA_FULL_ERROR": "1",
    "RAY_DEDUP_LOGS": "0",
    # A leftover cluster file in Ray's temporary folder would make ray.init join a cluster that is gone.
    "RAY_ADDRESS": "local",
}
MAY_CHANGE_ON_RESUME = (
    "trainer.resume_mode",
    "trainer.resume_from_path",
    "trainer.total_training_steps",
    "ray_kwargs",
    # Where a run lies is not what it is: its folder may be moved.
    "contract.run.folder",
    "trainer.default_local_dir",
    "trainer.v1.sampler.sampler_kwargs.run_folder",
)
CPU_ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    "VERL_ENGINE_DEVICE": "cpu",
    "VERL_ENGINE_VENDOR": "cpu",
    # One process for the engine: half the start-up time.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # Several processes share few cores: a thread that spins while it waits takes them from the others.
    "OMP_WAIT_POLICY": "PASSIVE",
}


def compose_config(overrides: list[str]) -> DictConfig:
    """Compose agent_contracts.yaml with a user's overrides; on a CPU stack `platform=cpu` is the default.

    Raises:
        ConfigContradiction: for a key that verl 0.9.1 renamed, with its successor.
    """
    renamed.check_overrides(overrides)
    if platform_cpu.is_cpu_stack() and not any(override.startswith("platform=") for override in overrides):
        overrides = ["platform=cpu", *overrides]
    with initialize_config_module("recipe.agent_contracts.config", version_base=None):
        config: DictConfig = compose("agent_contracts", overrides=overrides)
    with open_dict(config):
        if config.contract.run.folder is None:
            run_id = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S")
            config.contract.run.folder = str(Path(config.contract.run.root) / config.contract.run.experiment / run_id)
        config.contract.run.folder = str(Path(config.contract.run.folder).absolute())
    return config


def check(config: DictConfig) -> Experiment:
    """Every check that needs no process.

    Raises:
        ConfigContradiction, ContractViolation: naming the keys or files, and the fix.
        GuaranteeUnavailable: when this machine lacks what the experiment requires of the verifier's box.
    """
    experiment = bindings.check(plain(config))
    open_room(frozenset(experiment.verification.require_guarantees))
    preflight.check_model(config.actor_rollout_ref.model.path, config.actor_rollout_ref.model.tokenizer_path)
    preflight.check_data(Path(config.data.train_files), Path(config.data.val_files), experiment)
    _check_prompts(config)
    for key in _fixed_ports(config):
        preflight.check_port_free(OmegaConf.select(config, key), key)
    plugin.assert_registered()
    return experiment


def plain(config: DictConfig) -> dict[str, Any]:
    """The resolved configuration as plain containers."""
    container = OmegaConf.to_container(config, resolve=True)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def run(config: DictConfig) -> None:
    """Train. Returns when verl's trainer is done; the experiment is preregistered by then."""
    folder = Path(config.contract.run.folder)
    environment = process_environment(folder)
    os.environ.update(environment)
    with open_dict(config):
        # Ray's workers on other nodes do not inherit this process's environment.
        config.ray_kwargs.ray_init.runtime_env.env_vars = environment

    import ray
    from verl.trainer.main_ppo import run_ppo
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    from verl_ext.task_runner import ContractTaskRunner

    if config.actor_rollout_ref.rollout.trace.backend == "mlflow":
        tracing.create_experiment(
            os.environ["MLFLOW_TRACKING_URI"], config.trainer.project_name, str(folder / "mlartifacts")
        )
    validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    # Short, since Ray's sockets live below it and their paths are limited to 107 bytes.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as ray_folder:
        os.environ.setdefault("RAY_TMPDIR", ray_folder)
        try:
            run_ppo(config, task_runner_class=ray.remote(ContractTaskRunner))
        finally:
            ray.shutdown()
    # A control that only evaluates ends with the evaluation before training, which verl logs as step 0.
    _require_all_steps(folder, 0 if config.trainer.val_only else config.trainer.total_training_steps)
    report.write_final(config)


def _require_all_steps(folder: Path, total_steps: int) -> None:
    """A run that ends clean without its last step (an exhausted loader on resume) is an error, not a success."""
    lines = Path(os.environ["VERL_FILE_LOGGER_PATH"]).read_text().splitlines()
    last = json.loads(lines[-1])["step"] if lines else None
    if last != total_steps:
        raise ContractViolation("update.steps", f"{total_steps} optimizer steps", f"last step {last}", str(folder))


def preregister(config: DictConfig, folder: Path) -> None:
    """Write experiment.yaml and its hash before the first rollout; on resume require the same experiment.

    Raises:
        ConfigContradiction: naming the first key that a resumed run would change.
    """
    path = folder / "experiment.yaml"
    if path.exists():
        before, after = OmegaConf.load(path), OmegaConf.create(OmegaConf.to_container(config, resolve=True))
        for tree in (before, after):
            for key in MAY_CHANGE_ON_RESUME:
                OmegaConf.update(tree, key, None)
        changed = _first_difference(OmegaConf.to_container(before), OmegaConf.to_container(after))
        if changed is not None:
            raise ConfigContradiction(f"resume would change {changed} of the experiment preregistered in {path}")
        return
    write_atomically(path, OmegaConf.to_yaml(config, resolve=True).encode())
    write_atomically(folder / "experiment.sha256", sha256_json(plain(config)).encode() + b"\n")


def _first_difference(before: Any, after: Any, prefix: str = "") -> str | None:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            found = _first_difference(before.get(key), after.get(key), f"{prefix}.{key}" if prefix else key)
            if found is not None:
                return found
        return None
    return None if before == after else f"{prefix} from {before!r} to {after!r}"


def process_environment(folder: Path) -> dict[str, str]:
    """Environment of every process of the run; what the user set already wins."""
    defaults = {
        **PROCESS_ENVIRONMENT,
        **(CPU_ENVIRONMENT if platform_cpu.is_cpu_stack() else {}),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "VERL_FILE_LOGGER_PATH": str(metrics_path(folder)),
    }
    environment = {key: os.environ.get(key, value) for key, value in defaults.items()}
    environment[scaffold.RUN_FOLDER_VARIABLE] = str(folder)
    modules = environment["VERL_USE_EXTERNAL_MODULES"].split(",")
    if "verl_ext.plugin" not in modules:
        # A user's own modules (environments, tools) come after ours.
        environment["VERL_USE_EXTERNAL_MODULES"] = ",".join(["verl_ext.plugin", *filter(None, modules)])
    return environment


def _fixed_ports(config: DictConfig) -> list[str]:
    """Keys of the ports that the configuration fixes. Every other server of a run takes whichever port is free."""
    fixed = []
    if config.transfer_queue.metrics.enabled and config.transfer_queue.metrics.port:
        fixed.append("transfer_queue.metrics.port")
    if config.ray_kwargs.ray_init.get("include_dashboard") and config.ray_kwargs.ray_init.get("dashboard_port"):
        fixed.append("ray_kwargs.ray_init.dashboard_port")
    return fixed


def _tokenizer(config: DictConfig) -> Any:
    """The policy's tokenizer, loaded as verl's processes load it."""
    from verl.utils import hf_tokenizer

    model = config.actor_rollout_ref.model
    tokenizer = hf_tokenizer(model.tokenizer_path or model.path, trust_remote_code=model.trust_remote_code)
    if model.custom_chat_template is not None:
        tokenizer.chat_template = model.custom_chat_template
    return tokenizer


def _check_prompts(config: DictConfig) -> None:
    from recipe.agent_contracts import domains
    from recipe.agent_contracts.transition.rendering import ChatTemplateRenderer

    renderer = ChatTemplateRenderer(_tokenizer(config))

    def count_tokens(row: dict[str, Any]) -> int:
        env, task = domains.load(domains.domain_of(row["data_source"]).environment)(row["extra_info"]["task"])
        env.reset(task.task_id, row["extra_info"]["seed"])
        return len(renderer.initial(row["prompt"], [tool.as_openai() for tool in env.tools()]))

    for path in (config.data.train_files, config.data.val_files):
        preflight.check_prompt_lengths(Path(path), config.data.max_prompt_length, count_tokens)


def main(arguments: list[str] | None = None) -> int:
    """Command line. Returns 2 for a run that is refused, with the reason on stderr."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        config = compose_config([word for word in words if word != "--dry-run"])
        if "--dry-run" in words:
            bindings.check(plain(config))
            print(f"configuration is consistent; the run would be in {config.contract.run.folder}")
            return 0
        check(config)
        # First, since a start that is refused leaves no experiment behind.
        scaffold.lock_run(config, _tokenizer(config))
        preregister(config, Path(config.contract.run.folder))
    except (ConfigContradiction, ContractViolation, HydraException, OmegaConfBaseException) as error:
        print(f"refused: {error}", file=sys.stderr)
        return 2
    run(config)
    return 0


if __name__ == "__main__":
    sys.exit(main())
