"""Rollout worker: turns each episode into records, has it verified, and gives verl only what may be trained on.

Order for every episode: play, verify, write the records, then hand the row to TransferQueue. A censored or unverified
episode is recorded with its reason and raises, which makes verl mark its group "failure"; the replay buffer then
discards the whole group. Greedy held-out rows and tracing are decided here, since verl 0.9.1's worker offers neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import hydra.utils
import ray
from tensordict import TensorDict
from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopOutput,
    DictConfigWrap,
    ToolListWrap,
    _agent_loop_registry,
)
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ, apply_greedy_sampling_params
from verl.utils.rollout_trace import rollout_trace_attr

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.policy.scaffold_lock import decoding_key
from recipe.agent_contracts.transition.episode import Episode
from recipe.agent_contracts.transition.trajectory import EpisodeIdentity
from recipe.agent_contracts.update.leases import decode_lease
from verl_ext import agent_loop, plugin, scaffold, tracing
from verl_ext.leasing import LEASE, sampler_hash
from verl_ext.recorder import EpisodeRecorder
from verl_ext.reward_manager import VERDICT


def python_class_of(actor_class: Any) -> type:
    """The Python class inside a Ray actor class, which cannot be subclassed itself.

    Raises:
        ContractViolation: when Ray moved the attribute (checked with ray 2.60).
    """
    metadata = getattr(actor_class, "__ray_metadata__", None)
    found = getattr(metadata, "modified_class", None)
    if not isinstance(found, type):
        raise ContractViolation("plugin.ray", "__ray_metadata__.modified_class", found, "ray actor class")
    return found


class CensoredEpisode(ContractViolation):
    """The episode ended for a reason that is not the policy's. It carries no reward and fails its group."""


class MixedEpisode(ContractViolation):
    """The weights were switched inside the episode: it belongs to no single policy, and fails its group."""


class ContractAgentLoopWorkerImpl(python_class_of(AgentLoopWorkerTQ)):  # type: ignore[misc]
    """verl's V1 rollout worker with verification before hand-over, records and traces."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        plugin.assert_registered()
        super().__init__(*args, **kwargs)
        self._recorder = EpisodeRecorder(self.config, self.tokenizer)
        scaffold.attest_process(self.config, self.tokenizer, {"rollout": ("train",), "evaluator": ("heldout/",)})
        self._drift: ContractViolation | None = None
        self._traced: tuple[int, set[str]] = (-1, set())
        self._loops: dict[str, Any] = {}

    async def _run_agent_loop(
        self, sampling_params: dict[str, Any], trajectory: dict[str, Any], *, agent_name: str, **kwargs: Any
    ) -> None:
        """verl's method with the sampler of greedy held-out rows, tracing, and the loop's class resolved only once."""
        kwargs.pop("trace", None)
        params = dict(sampling_params)
        if trajectory["validate"] and kwargs["extra_info"].get("decoding") == "greedy":
            apply_greedy_sampling_params(params)
        with rollout_trace_attr(
            step=trajectory["step"],
            sample_index=trajectory["sample_index"],
            rollout_n=kwargs["session_id"],
            validate=trajectory["validate"],
            name="agent_loop",
            trace=self._is_traced(trajectory["step"], kwargs["uid"]),
        ):
            loop = self._new_loop(agent_name)
            loop.before_sampling = self._guard(trajectory["validate"], params, kwargs)
            output = await loop.run(params, **kwargs)
            await self._hand_over(output, trajectory["validate"], params, kwargs)

    async def generate_sequences(self, batch: TensorDict) -> None:
        """verl's method, which raises in the trainer once an episode's scaffold was not the locked one."""
        if self._drift is not None:
            raise self._drift
        await super().generate_sequences(batch)

    def _guard(self, validate: bool, params: dict[str, Any], row: dict[str, Any]) -> Callable[[Episode], None]:
        """The check of one episode before its first token. A drift fails the episode's group now, and the run as soon
        as the trainer asks for more."""
        key = decoding_key("val" if validate else "train", row["extra_info"]["decoding"])
        lease = None if validate else decode_lease(row[LEASE])

        def require_locked(episode: Episode) -> None:
            try:
                self._recorder.require_locked(episode, key, params)
            except ContractViolation as drift:
                self._drift = drift
                raise
            if lease is not None:
                lease.require("group_id", row["uid"])
                lease.require("base_snapshot_id", episode.base_state)
                lease.require("sampler_config_hash", sampler_hash(self._recorder.scaffold(episode, params).sampler))

        return require_locked

    def _new_loop(self, agent_name: str) -> AgentLoopBase:
        if agent_name not in self._loops:
            registered = _agent_loop_registry[agent_name]
            self._loops[agent_name] = hydra.utils.instantiate(registered, _partial_=True)
        return self._loops[agent_name](
            trainer_config=DictConfigWrap(self.config),
            server_manager=self.llm_client,
            tokenizer=self.tokenizer,
            processor=self.processor,
            hf_model_type=self.hf_model_type,
            dataset_cls=self.dataset_cls,
            data_config=DictConfigWrap(self.config.data),
            tools=ToolListWrap(self.tools),
        )

    async def _hand_over(
        self, output: AgentLoopOutput, validate: bool, sampling_params: dict[str, Any], row: dict[str, Any]
    ) -> None:
        """Verify, record, then give the row to TransferQueue.

        Raises:
            MixedEpisode, LeaseViolation, CensoredEpisode, VerifierFailure, InvalidMeasurement: after the record was
                written; verl fails the group.
        """
        episode = output.extra_fields.pop(agent_loop.EPISODE)
        final_state = episode.env.export_state()
        identity = self._recorder.identity(episode, row, validate)
        try:
            self._require_one_policy(episode, identity, sampling_params, row.get(LEASE))
            if episode.termination.is_outcome:
                await self._verify(output, self._recorder.blobs.put(final_state), row, identity)
        except Exception as error:
            # What a reward worker raised arrives wrapped in Ray's own error.
            cause = getattr(error, "cause", error)
            episode.error = f"{type(cause).__name__}: {cause}"
            self._recorder.write(episode, identity, sampling_params, final_state, reward=None)
            self._recorder.quarantine(episode, identity, final_state, cause)
            raise
        reward, verdict = output.extra_fields.get("reward_extra_info"), output.extra_fields.pop(VERDICT, None)
        self._recorder.write(episode, identity, sampling_params, final_state, reward, verdict)
        self._summarise(episode, identity, output)
        if reward is None:
            raise CensoredEpisode("transition.termination", "an outcome", episode.termination, identity.trajectory_id)
        output.extra_fields["termination"] = str(episode.termination)
        output.extra_fields["finished_at"] = episode.turns[-1].finished_at
        await self._agent_loop_postprocess(output, validate, **row)

    async def _verify(
        self, output: AgentLoopOutput, final_state_hash: str, row: dict[str, Any], identity: EpisodeIdentity
    ) -> None:
        """Have the sealed final state scored, by reference: the reward worker reads it from the run's blobs."""
        output.extra_fields["final_state_hash"] = final_state_hash
        with tracing.span("verification", "EVALUATOR", task_id=identity.task_id) as span:
            await self._compute_score([output], kwargs=row)
            span.outputs(**output.extra_fields["reward_extra_info"])
        del output.extra_fields["final_state_hash"]
        output.extra_fields[VERDICT] = output.extra_fields["reward_extra_info"].pop(VERDICT)

    def _require_one_policy(
        self, episode: Episode, identity: EpisodeIdentity, sampling_params: dict[str, Any], carried: str | None
    ) -> None:
        """Raise when the episode is not of one policy, or, in training, not of the one that its group is leased for."""
        versions = episode.policy_versions
        if len(versions) > 1:
            raise MixedEpisode("policy.lease", "one version", versions, identity.trajectory_id)
        if carried is not None and versions:
            lease, (version,) = decode_lease(carried), versions
            lease.require("policy_version", version)
            manifest = self._recorder.manifest(version, self._recorder.scaffold(episode, sampling_params))
            lease.require("behavior_manifest_hash", manifest.manifest_hash)

    def _summarise(self, episode: Episode, identity: EpisodeIdentity, output: AgentLoopOutput) -> None:
        reward = output.extra_fields.get("reward_extra_info")
        tracing.summarise_trace(
            inputs={"messages": episode.messages},
            outputs={"termination": episode.termination, "reward": reward, "error": episode.error},
            tags={
                "task_id": identity.task_id,
                "family": identity.family,
                "seed": identity.seed,
                "termination": episode.termination,
                "reward": output.reward_score,
                "trajectory_id": identity.trajectory_id,
            },
        )

    async def flush(self) -> None:
        """Write the traces that are still queued."""
        await asyncio.to_thread(tracing.flush)

    def _is_traced(self, step: int, uid: str) -> bool:
        """The first few prompts of each step, all their siblings (`rollout.trace.max_samples_per_step_per_worker`)."""
        trace = self.rollout_config.trace
        if trace.backend is None:
            return False
        if self._traced[0] != step:
            self._traced = (step, set())
        uids = self._traced[1]
        limit = trace.max_samples_per_step_per_worker
        if uid not in uids and (limit is None or len(uids) < limit):
            uids.add(uid)
        return uid in uids


class ContractAgentLoopManager(AgentLoopManagerTQ):
    """Named by `rollout.agent.agent_loop_manager_class`: starts our workers instead of verl's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(ContractAgentLoopWorkerImpl)

    def wait_until_ready(self) -> None:
        """Wait until every worker was made, so that one that refused its scaffold stops the run before it samples."""
        ray.get([worker.__ray_ready__.remote() for worker in self.agent_loop_workers])

    def flush(self) -> None:
        """Wait until every worker has written its traces: verl exports them in the background."""
        ray.get([worker.flush.remote() for worker in self.agent_loop_workers])
