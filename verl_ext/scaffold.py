"""Scaffolds of a run, computed by each process from its own tokenizer, environments and engine.

The launcher computes those of every row and locks them before Ray starts. The trainer, each rollout worker (which also
evaluates) and each reward worker then compute them again for one row of each decoding, and each inference rank says
which engine it is; a rollout worker also checks every episode before its first token.
"""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch

from recipe.agent_contracts import domains
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.policy.live import Engine, ScaffoldBuilder, files_checksum, sampler_of
from recipe.agent_contracts.policy.manifest import Sampler, Scaffold
from recipe.agent_contracts.policy.scaffold_lock import (
    TRAIN,
    ScaffoldLock,
    attest,
    decoding_key,
    lock_of,
    read_lock,
    record_attestation,
    write_lock,
)
from recipe.agent_contracts.transition.episode import Limits
from recipe.agent_contracts.transition.observations import ObservationLimit
from recipe.agent_contracts.transition.parsers import parser_named
from recipe.agent_contracts.transition.parsers.base import StrictParser

RUN_FOLDER_VARIABLE = "AGENT_CONTRACTS_RUN_FOLDER"
VAL = "val"


def run_folder() -> Path:
    """The run folder, as the launcher gives it to every process.

    Raises:
        ContractViolation: when the process was not started by the launcher.
    """
    if RUN_FOLDER_VARIABLE not in os.environ:
        raise ContractViolation("plugin.environment", RUN_FOLDER_VARIABLE, "unset", remedy="start runs by our launcher")
    return Path(os.environ[RUN_FOLDER_VARIABLE])


def sampler(sampling_params: dict[str, Any], rollout: Any) -> Sampler:
    """The sampler of a request: what the worker sends, and what verl's server adds to it."""
    return sampler_of({**sampling_params, "ignore_eos": bool(rollout.ignore_eos)})


def declared_sampler(rollout: Any, key: str) -> Sampler:
    """The sampler that the configuration declares for a decoding."""
    chosen = rollout if key == TRAIN else rollout.val_kwargs
    params = {"temperature": chosen.temperature, "top_p": chosen.top_p, "top_k": chosen.top_k}
    if key == "heldout/greedy":
        params = {"temperature": 0.0, "top_p": 1.0, "top_k": -1}
    return sampler({**params, "repetition_penalty": 1.0}, rollout)


def limits_of(task: Any, rollout: Any) -> Limits:
    """Budgets of a task and limits of the harness."""
    return Limits(
        step_budget=task.step_budget,
        token_budget=task.token_budget,
        max_prompt_tokens=rollout.prompt_length,
        max_response_tokens=rollout.response_length,
        max_context_tokens=rollout.max_model_len or rollout.prompt_length + rollout.response_length,
        max_steps=rollout.multi_turn.max_assistant_turns,
    )


def parser_of(config: Any) -> StrictParser:
    """The declared parser. `config` is verl's whole configuration."""
    return parser_named(config.contract.policy.parser)


def observation_limit_of(config: Any) -> ObservationLimit | None:
    """What the model reads of a long observation. None: all of it."""
    declared = config.contract.environment
    if declared.max_observation_chars is None:
        return None
    return ObservationLimit(declared.max_observation_chars, declared.observation_keeps)


def builder(config: Any, tokenizer: Any) -> ScaffoldBuilder:
    """Scaffolds as this process sees them. `config` is verl's whole configuration."""
    rollout = config.actor_rollout_ref.rollout
    engine = Engine(engine_build(rollout.name), _dtype_name(rollout.dtype), rollout.quantization, rollout.logprobs_mode)
    return ScaffoldBuilder(tokenizer, engine)


def lock_run(config: Any, tokenizer: Any) -> ScaffoldLock:
    """Compute the scaffold of every row and lock them; on resume require that they are the locked ones.

    Raises:
        ContractViolation: ``policy.scaffold`` or ``policy.base``.
    """
    run, build = Path(config.contract.run.folder), builder(config, tokenizer)
    found: dict[str, list[Scaffold]] = {}
    for partition in (TRAIN, VAL):
        for key, scaffold in _scaffolds(config, build, partition):
            known = found.setdefault(key, [])
            if scaffold not in known:
                known.append(scaffold)
    lock = lock_of(files_checksum(model_folder(config.actor_rollout_ref.model.path)), found)
    write_lock(run, lock)
    attest(run, "launcher", found)
    return lock


def attest_process(config: Any, tokenizer: Any, roles: dict[str, tuple[str, ...]]) -> None:
    """Compute one scaffold of each decoding in this process, and require that it is locked.

    Args:
        config: verl's whole configuration.
        tokenizer: This process's own.
        roles: Which decodings each role of this process answers for: prefixes of their names.

    Raises:
        ContractViolation: ``policy.scaffold``, naming what drifted.
    """
    run, build = Path(config.contract.run.folder), builder(config, tokenizer)
    decodings = read_lock(run).decodings
    found: dict[str, list[Scaffold]] = {}
    for partition in (TRAIN, VAL):
        missing = {key for key in decodings if (key == TRAIN) == (partition == TRAIN)}
        for key, scaffold in _scaffolds(config, build, partition):
            found.setdefault(key, [scaffold])
            missing.discard(key)
            if not missing:
                break
    for role, prefixes in roles.items():
        attest(run, role, {key: found[key] for key in found if key.startswith(prefixes)})


def attest_engine(run: Path, vllm_config: Any) -> None:
    """Compare the running engine with the locked one.

    Raises:
        ContractViolation: ``policy.engine``, naming what differs.
    """
    import vllm

    model = vllm_config.model_config
    name = engine_build("vllm").partition(":")[0]
    build, dtype = _build(name, vllm.__version__), str(model.dtype).removeprefix("torch.")
    live = Engine(build, dtype, model.quantization, model.logprobs_mode)
    for key, scaffolds in read_lock(run).decodings.items():
        for scaffold in scaffolds:
            locked = Engine(
                scaffold.engine_build,
                scaffold.engine_dtype,
                scaffold.quantization,
                scaffold.logprobs_mode,
                scaffold.grammar,
            )
            if live != locked:
                raise ContractViolation("policy.engine", msgspec.to_builtins(locked), msgspec.to_builtins(live), key)
    record_attestation(run, "engine", {"engine": [live.build]})


def engine_build(rollout_name: str) -> str:
    """Distribution and version of the installed engine, and of torch.

    Raises:
        ContractViolation: when neither the engine nor its CPU build is installed.
    """
    for distribution in (f"{rollout_name}-cpu", rollout_name):
        try:
            return _build(distribution, importlib.metadata.version(distribution))
        except importlib.metadata.PackageNotFoundError:
            continue
    raise ContractViolation("policy.engine", f"an installed distribution of {rollout_name}", "none")


def _dtype_name(configured: str) -> str:
    """torch's own name of a configured dtype (vLLM also takes `half`).

    Raises:
        ContractViolation: ``policy.engine`` for `auto`, which leaves the policy to the engine.
    """
    dtype = getattr(torch, configured, None)
    if not isinstance(dtype, torch.dtype):
        raise ContractViolation("policy.engine", "a dtype by name", f"actor_rollout_ref.rollout.dtype={configured}")
    return str(dtype).removeprefix("torch.")


def model_folder(path: str) -> Path:
    """Where the model's files lie: a folder, or a hub name's snapshot in the local cache."""
    if Path(path).is_dir():
        return Path(path)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(path, local_files_only=True))


def _build(distribution: str, version: str) -> str:
    return f"{distribution}:{version} torch:{torch.__version__}"


def of_row(config: Any, build: ScaffoldBuilder, row: dict[str, Any], messages: Any, key: str) -> tuple[Scaffold, str]:
    """The scaffold that a dataset row is played in under a decoding, and the state hash that it starts from."""
    rollout, info = config.actor_rollout_ref.rollout, row["extra_info"]
    env, task = domains.load(domains.domain_of(row["data_source"]).environment)(info["task"])
    env.reset(info["task_id"], info["seed"])
    schemas = env.tools()
    tools, oracles = [tool.as_openai() for tool in schemas], [tool.name for tool in schemas if tool.is_oracle]
    limits, chosen = limits_of(task, rollout), declared_sampler(rollout, key)
    shown = observation_limit_of(config)
    scaffold = build.build(list(messages), tools, parser_of(config), limits, shown, chosen, oracles)
    return scaffold, env.state_hash()


def _scaffolds(config: Any, build: ScaffoldBuilder, partition: str) -> Iterator[tuple[str, Scaffold]]:
    """(decoding, scaffold) of each row of a partition's file, in turn."""
    path = config.data.train_files if partition == TRAIN else config.data.val_files
    for row in _rows(Path(path)):
        key = decoding_key(partition, row["extra_info"]["decoding"])
        yield key, of_row(config, build, row, row["prompt"], key)[0]


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    for batch in pq.ParquetFile(path).iter_batches(256, columns=["data_source", "prompt", "extra_info"]):
        yield from batch.to_pylist()
