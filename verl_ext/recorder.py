"""Writes a finished episode into the run folder: turn records, manifests, and the blobs that replay needs.

One recorder a rollout worker, each with a part file of its own. It builds manifests from the live tokenizer, tools and
sampler of this process.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import time
from pathlib import Path
from typing import Any

import msgspec

from recipe.agent_contracts.canonical import sha256_bytes, sha256_json
from recipe.agent_contracts.policy.manifest import PolicyManifest, Sampler, files_checksum, tokenizer_revision
from recipe.agent_contracts.transition.episode import Episode, Turn
from recipe.agent_contracts.transition.snapshots import BlobStore
from recipe.agent_contracts.transition.trajectory import EpisodeIdentity, TrajectoryWriter, TurnRecord
from recipe.agent_contracts.transition.trajectory.context import ContextLink, context_links
from recipe.agent_contracts.transition.trajectory.recording import record_of

MAX_INLINE_CHARS = 16_384
"""Longer observations are blobs, which equal ones share."""


class EpisodeRecorder:
    """See the module's docstring. `config` is verl's whole configuration with our `contract:` section."""

    def __init__(self, config: Any, tokenizer: Any) -> None:
        self.config = config
        self.run = Path(config.contract.run.folder)
        self.rollout = config.actor_rollout_ref.rollout
        self.blobs = BlobStore(self.run / "blobs")
        part = f"{int(time.time() * 1000)}-{os.getpid()}"
        self.writer = TrajectoryWriter(self.run / "trajectories", part, config.contract.records.compression)
        self.engine_build = _engine_build(self.rollout.name)
        self._tokenizer_revision = tokenizer_revision(tokenizer)
        self._chat_template_hash = sha256_bytes((tokenizer.chat_template or "").encode())
        self._base_revision = files_checksum(_model_folder(config.actor_rollout_ref.model.path))
        self._manifest = functools.lru_cache(maxsize=256)(self._build_manifest)

    def identity(self, episode: Episode, row: dict[str, Any], validate: bool) -> EpisodeIdentity:
        """Name an episode by its dataset row; the task and its grader go into the blob store."""
        info = row["extra_info"]
        return EpisodeIdentity(
            run_id=self.run.name,
            trajectory_id=f"{row['uid']}_{row['session_id']}",
            group_id=row["uid"],
            partition="val" if validate else "train",
            trainer_step=int(row["global_steps"]),
            task_id=info["task_id"],
            family=info["family"],
            template=info["template"],
            data_source=row["data_source"],
            decoding=info["decoding"],
            seed=int(info["seed"]),
            env_version=episode.env.env_version,
            task_hash=self.blobs.put(info["task"].encode()),
            grader_hash=self.blobs.put(row["reward_model"]["ground_truth"].encode()),
        )

    def write(
        self,
        episode: Episode,
        identity: EpisodeIdentity,
        sampling_params: dict[str, Any],
        final_state: bytes,
        reward: dict[str, float] | None,
    ) -> None:
        """Append the episode's turns. The last carries the termination code, the reward vector and the final state."""
        sampler = _sampler(sampling_params)
        turns = episode.turns or [_no_turn(episode)]
        links = context_links([(turn.prompt_token_ids, turn.token_ids) for turn in turns], identity.trajectory_id)
        records = [
            self._record(episode, turn, index, link, identity, sampler)
            for index, (turn, link) in enumerate(zip(turns, links, strict=True))
        ]
        records[-1] = _closed(records[-1], episode, reward, self.blobs.put(final_state))
        self.writer.append(records)

    def _record(
        self,
        episode: Episode,
        turn: Turn,
        index: int,
        link: ContextLink,
        identity: EpisodeIdentity,
        sampler: Sampler,
    ) -> TurnRecord:
        version = turn.policy_version
        manifest = None if version is None else self._manifest_of(episode, version, sampler)
        return record_of(
            turn,
            index,
            link,
            identity,
            base_state=episode.base_state,
            policy_manifest_hash=None if manifest is None else manifest.manifest_hash,
            behavior_weight_checksum=None if manifest is None else manifest.weight_checksum,
            generator_build=self.engine_build,
            sampler_config={"temperature": sampler.temperature, "top_p": sampler.top_p, "top_k": sampler.top_k},
            raw_model_logprobs=turn.logprobs if sampler.is_model_distribution else None,
            observation_ref=self._long_observation(turn),
        )

    def _long_observation(self, turn: Turn) -> str | None:
        """The blob of a raw text that is too long for the record."""
        if turn.observation is None or len(turn.observation) <= MAX_INLINE_CHARS:
            return None
        return self.blobs.put(turn.observation.encode())

    def _manifest_of(self, episode: Episode, version: int, sampler: Sampler) -> PolicyManifest:
        system = sha256_json([message for message in episode.messages if message["role"] == "system"])
        budgets = (episode.limits.step_budget, episode.limits.token_budget)
        manifest: PolicyManifest = self._manifest(version, sampler, sha256_json(episode.tools), system, budgets)
        return manifest

    def _build_manifest(
        self, version: int, sampler: Sampler, tools: str, system: str, budgets: tuple[int, int]
    ) -> PolicyManifest:
        manifest = PolicyManifest(
            policy_version=version,
            weight_checksum=self._base_revision if version == 0 else None,
            base_revision=self._base_revision,
            adapter_revision=None,
            tokenizer_revision=self._tokenizer_revision,
            system_prompt_hash=system,
            chat_template_hash=self._chat_template_hash,
            tool_schema_hash=tools,
            parser_version=self.config.contract.policy.parser,
            step_budget=budgets[0],
            token_budget=budgets[1],
            sampler=sampler,
            engine_build=self.engine_build,
            quantization=self.rollout.quantization,
            logprobs_mode=self.rollout.logprobs_mode,
        )
        manifest.write(self.run / "manifests")
        return manifest


def _model_folder(path: str) -> Path:
    """Where the model's files lie: a folder, or a hub name's snapshot in the local cache."""
    if Path(path).is_dir():
        return Path(path)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(path, local_files_only=True))


def _sampler(sampling_params: dict[str, Any]) -> Sampler:
    """The sampler as the engine applies it: verl writes "no top-k" as -1, and a temperature of 0 means greedy."""
    top_k = sampling_params["top_k"]
    return Sampler(
        temperature=float(sampling_params["temperature"]),
        top_p=float(sampling_params["top_p"]),
        top_k=None if top_k in (-1, 0) else int(top_k),
        repetition_penalty=float(sampling_params["repetition_penalty"]),
    )


def _no_turn(episode: Episode) -> Turn:
    """Stands for an episode that failed before its first token: a record with empty ids and its error."""
    now = time.time()
    return Turn(now, now, episode.prompt_ids, [], [], "", None, episode.base_state, episode.base_state, None)


def _closed(record: TurnRecord, episode: Episode, reward: dict[str, float] | None, state_hash: str) -> TurnRecord:
    return msgspec.structs.replace(
        record,
        reward_components=reward,
        final_state_hash=state_hash,
        termination_reason=episode.termination,
        error=episode.error,
    )


def _engine_build(rollout_name: str) -> str:
    for distribution in (rollout_name, f"{rollout_name}-cpu"):
        try:
            return f"{distribution}:{importlib.metadata.version(distribution)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return f"{rollout_name}:unknown"
