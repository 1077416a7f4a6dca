"""Writes a finished episode into the run folder: turn records, manifests, and the blobs that replay needs.

One recorder a rollout worker, each with a part file of its own. It builds manifests from the live tokenizer, tools and
sampler of this process, and from the weights that the registry says were served under a version.
"""

from __future__ import annotations

import functools
import os
import time
from pathlib import Path
from typing import Any

import msgspec

from recipe.agent_contracts.policy.manifest import PolicyManifest, Scaffold
from recipe.agent_contracts.policy.registry import Registry
from recipe.agent_contracts.policy.scaffold_lock import read_lock
from recipe.agent_contracts.transition.episode import Episode, Turn
from recipe.agent_contracts.transition.snapshots import BlobStore
from recipe.agent_contracts.transition.trajectory import EpisodeIdentity, TrajectoryWriter, TurnRecord
from recipe.agent_contracts.transition.trajectory.context import ContextLink, context_links
from recipe.agent_contracts.transition.trajectory.recording import record_of
from recipe.agent_contracts.update.gradient_mass import length_band
from recipe.agent_contracts.verification.quarantine import Entry, Quarantine, reason_of
from verl_ext import scaffold

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
        self._quarantine = Quarantine(self.run)
        self._registry = Registry(self.run)
        self._lock = read_lock(self.run)
        self._builder = scaffold.builder(config, tokenizer)
        self.manifest = functools.lru_cache(maxsize=256)(self._build_manifest)

    def scaffold(self, episode: Episode, sampling_params: dict[str, Any]) -> Scaffold:
        """What an episode is sampled in, from the live objects of this process."""
        sampler = scaffold.sampler(sampling_params, self.rollout)
        return self._builder.build(
            episode.messages,
            episode.tools,
            episode.parser,
            episode.limits,
            episode.observation_limit,
            sampler,
            episode.oracle_tools,
        )

    def require_locked(self, episode: Episode, key: str, sampling_params: dict[str, Any]) -> None:
        """Raise unless the run locked this episode's scaffold for its decoding.

        Raises:
            ContractViolation: ``policy.scaffold``, before a token was sampled.
        """
        self._lock.require(key, self.scaffold(episode, sampling_params), "rollout")

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
        verdict: str | None = None,
    ) -> None:
        """Append the episode's turns. The last carries the termination code, the reward vector, the blob of the verdict
        behind it, and the final state."""
        played_in = self.scaffold(episode, sampling_params)
        turns = episode.turns or [_no_turn(episode)]
        links = context_links([(turn.prompt_token_ids, turn.token_ids) for turn in turns], identity.trajectory_id)
        records = [
            self._record(episode, turn, index, link, identity, played_in)
            for index, (turn, link) in enumerate(zip(turns, links, strict=True))
        ]
        records[-1] = msgspec.structs.replace(
            records[-1],
            reward_components=reward,
            verdict_ref=verdict,
            final_state_hash=self.blobs.put(final_state),
            termination_reason=episode.termination,
            error=episode.error,
        )
        self.writer.append(records)

    def quarantine(self, episode: Episode, identity: EpisodeIdentity, final_state: bytes, error: Exception) -> None:
        """Set an episode apart whose measurement cannot be trusted. Other errors are named by its record alone."""
        reason = reason_of(error)
        if reason is None:
            return
        self._quarantine.add(
            Entry(
                at=time.time(),
                trajectory_id=identity.trajectory_id,
                group_id=identity.group_id,
                task_id=identity.task_id,
                family=identity.family,
                length=length_band(sum(len(turn.token_ids) for turn in episode.turns)),
                reason=reason,
                error=str(error),
                final_state_hash=self.blobs.put(final_state),
                reward=None,
            )
        )

    def _record(
        self,
        episode: Episode,
        turn: Turn,
        index: int,
        link: ContextLink,
        identity: EpisodeIdentity,
        played_in: Scaffold,
    ) -> TurnRecord:
        version, sampler = turn.policy_version, played_in.sampler
        manifest = None if version is None else self.manifest(version, played_in)
        return record_of(
            turn,
            index,
            link,
            identity,
            base_state=episode.base_state,
            policy_manifest_hash=None if manifest is None else manifest.manifest_hash,
            behavior_weight_checksum=None if manifest is None else manifest.weight_checksum,
            generator_build=played_in.engine_build,
            sampler_config={"temperature": sampler.temperature, "top_p": sampler.top_p, "top_k": sampler.top_k},
            raw_model_logprobs=turn.logprobs if sampler.is_model_distribution else None,
            observation_ref=self._long_observation(turn),
        )

    def _long_observation(self, turn: Turn) -> str | None:
        """The blob of a raw text that is too long for the record."""
        if turn.observation is None or len(turn.observation) <= MAX_INLINE_CHARS:
            return None
        return self.blobs.put(turn.observation.encode())

    def _build_manifest(self, version: int, played_in: Scaffold) -> PolicyManifest:
        published = self._registry.published(version)
        assert published.weight_checksum is not None, "a served publication was staged"
        manifest = PolicyManifest.of(
            played_in,
            policy_version=version,
            weight_checksum=published.weight_checksum,
            base_revision=self._lock.base_revision,
            adapter_revision=published.adapter_checksum,
        )
        manifest.write(self.run / "manifests")
        return manifest


def _no_turn(episode: Episode) -> Turn:
    """Stands for an episode that failed before its first token: a record with empty ids and its error."""
    now = time.time()
    return Turn(now, now, episode.prompt_ids, [], [], "", None, episode.base_state, episode.base_state, None, None)
