"""ContractAgentLoop: verl's agent loop over the pure `Episode`, token in and token out.

It samples through verl's server, steps the environment under a time limit, and hands the finished episode to the
rollout worker. Everything that could go wrong ends the episode with a censored code; no dummy trajectory is returned.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register
from verl.utils.profiler import simple_timer

from recipe.agent_contracts import domains
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.transition.actions import Action
from recipe.agent_contracts.transition.env import Transition
from recipe.agent_contracts.transition.episode import Episode
from recipe.agent_contracts.transition.rendering import ChatTemplateRenderer
from recipe.agent_contracts.transition.termination import Termination
from verl_ext import scaffold, tracing

TURN_ANCHORS = "turn_anchors"
"""Key in `extra_fields` of the state hash before each turn, for credit among turns that start in one state."""
EPISODE = "contract_episode"
"""Key in `AgentLoopOutput.extra_fields` under which the rollout worker finds the episode."""


@functools.lru_cache(maxsize=4)
def shared_renderer(tokenizer: Any) -> ChatTemplateRenderer:
    """One renderer a process and tokenizer: verl builds a new agent loop for every episode."""
    return ChatTemplateRenderer(tokenizer)


async def in_own_thread(function: Callable[[Action], Transition], action: Action) -> Transition:
    """Run a step in a thread of its own. In a shared pool a few hanging tools would use up the workers, and every other
    episode's tool would miss its limit while it waits for one."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Transition] = loop.create_future()

    def settle(transition: Transition | None, error: Exception | None) -> None:
        if answer.done():  # the limit was met before
            return
        if error is not None:
            answer.set_exception(error)
        elif transition is not None:
            answer.set_result(transition)

    def work() -> None:
        transition, error = None, None
        try:
            transition = function(action)
        except Exception as raised:  # handed to the waiting episode, which is the boundary
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop was closed while the tool hung
            loop.call_soon_threadsafe(settle, transition, error)

    threading.Thread(target=work, daemon=True).start()
    return await answer


def _lease(labels: dict[str, Any]) -> tuple[int, int]:
    """The engine's labels of a turn: the version that it began with, and the one that it ended with.

    Raises:
        ContractViolation: ``policy.lease`` when a label is missing: nobody could say whose tokens these are.
    """
    first, last = labels.get("min_global_steps"), labels.get("max_global_steps")
    if first is None or last is None:
        raise ContractViolation("policy.lease", "the engine's version at both ends of a turn", (first, last))
    return first, last


@register("contract_agent")
class ContractAgentLoop(AgentLoopBase):
    """The dataset's `agent_name: contract_agent`. One instance plays one episode."""

    before_sampling: Callable[[Episode], None] = staticmethod(lambda episode: None)
    """Set by the rollout worker: raises when the episode's scaffold is not the locked one."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        """Play one episode.

        Args:
            sampling_params: verl's, after its defaults.
            **kwargs: The dataset row: `raw_prompt`, `data_source`, `extra_info` (task, task_id, seed).

        Returns:
            verl's output; `extra_fields["contract_episode"]` holds the `Episode` for the worker, which removes it.
        """
        episode = self._open(kwargs)
        self.before_sampling(episode)
        metrics: dict[str, Any] = {}
        with tracing.span("episode", "AGENT", task_id=kwargs["extra_info"]["task_id"]) as span:
            try:
                await self._play(episode, sampling_params, metrics)
            except Exception as error:  # the boundary: an engine or environment failure is data, not a crash
                episode.abort(Termination.INFRA_ABORT, f"{type(error).__name__}: {error}")
            span.outputs(termination=episode.termination, turns=len(episode.turns), error=episode.error)
        return self._output(episode, metrics)

    def _open(self, row: dict[str, Any]) -> Episode:
        info = row["extra_info"]
        env, task = domains.load(domains.domain_of(row["data_source"]).environment)(info["task"])
        limits = scaffold.limits_of(task, self.rollout_config)
        renderer = shared_renderer(self.tokenizer)
        parser, shown = scaffold.parser_of(self.config), scaffold.observation_limit_of(self.config)
        return Episode(env, info["task_id"], info["seed"], list(row["raw_prompt"]), renderer, parser, limits, shown)

    async def _play(self, episode: Episode, sampling_params: dict[str, Any], metrics: dict[str, Any]) -> None:
        request_id = uuid4().hex
        while episode.termination is None:
            with tracing.span(f"turn {len(episode.turns)}", "CHAIN") as span:
                with simple_timer("generate_sequences", metrics):
                    output = await self.server_manager.generate(
                        request_id=request_id,
                        prompt_ids=episode.context_ids,
                        # The server's own default would allow more than the episode has left.
                        sampling_params={**sampling_params, "max_tokens": episode.max_new_tokens},
                    )
                lease = _lease(output.extra_fields)
                action = episode.sampled(list(output.token_ids), list(output.log_probs or []), *lease)
                if action is not None:
                    with simple_timer("tool_calls", metrics):
                        await self._step(episode, action)
                turn = episode.turns[-1]
                span.outputs(text=turn.text, observation=turn.observation, state_after=turn.state_after)

    async def _step(self, episode: Episode, action: Action) -> None:
        limit = self.config.contract.environment.tool_timeout_seconds
        with tracing.span(f"tool {action.name or action.kind}", "TOOL", args=action.args) as span:
            try:
                transition: Transition = await asyncio.wait_for(in_own_thread(episode.env.step, action), timeout=limit)
            except TimeoutError:
                episode.abort(Termination.TOOL_TIMEOUT, f"{action.name} gave no answer within {limit} s")
                return
            episode.stepped(transition)
            span.outputs(observation=transition.observation, invalid_reason=action.invalid_reason)

    def _output(self, episode: Episode, metrics: dict[str, Any]) -> AgentLoopOutput:
        versions = episode.policy_versions
        return AgentLoopOutput(
            prompt_ids=episode.prompt_ids,
            response_ids=episode.response_ids,
            response_mask=episode.response_mask,
            response_logprobs=episode.response_logprobs,
            num_turns=2 * len(episode.turns),
            metrics=AgentLoopMetrics(**metrics),
            extra_fields={
                EPISODE: episode,
                TURN_ANCHORS: [turn.state_before for turn in episode.turns],
                "min_global_steps": min(versions, default=None),
                "max_global_steps": max(versions, default=None),
                "turn_scores": [],
                "tool_rewards": [],
            },
        )
