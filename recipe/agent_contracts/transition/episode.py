"""One episode as a state machine: context ids out, sampled ids in, one typed action and one transition a turn.

    CREATED -> [sampled -> stepped]* -> ended(termination)

It owns the token bookkeeping that a gradient depends on: exact sampled ids, one finite log probability for each,
mask 1 on policy tokens only, and exactly one termination code. It neither samples nor runs the environment: the
caller does both, so the trainer's loop, the command line and the cold start share it.
"""

from __future__ import annotations

import math
import time
from typing import Any

import msgspec

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.transition.actions import Action
from recipe.agent_contracts.transition.env import AgentEnv, Transition
from recipe.agent_contracts.transition.observations import ObservationCut, ObservationLimit
from recipe.agent_contracts.transition.parsers.base import StrictParser
from recipe.agent_contracts.transition.rendering import ChatTemplateRenderer
from recipe.agent_contracts.transition.termination import Termination


class Limits(msgspec.Struct, frozen=True):
    """What ends an episode that nobody finishes. Budgets belong to the task, the rest to the harness."""

    step_budget: int
    """Turns; part of the task. Ends in task_budget_exhausted_terminal."""
    token_budget: int
    """Policy and observation tokens after the prompt; part of the task. Ends the same way."""
    max_prompt_tokens: int
    """Harness: a longer first context is refused before a token is sampled."""
    max_response_tokens: int
    """Harness: length of the trainer's response tensor. Ends in max_token_truncation."""
    max_context_tokens: int
    """Harness: the engine's max_model_len. Ends in max_token_truncation."""
    max_steps: int | None = None
    """Harness cap on turns below the task's budget. Ends in max_step_truncation."""

    @classmethod
    def of_task(cls, step_budget: int, token_budget: int, max_context_tokens: int) -> Limits:
        """The task's own budgets, and of the harness nothing but the model's context."""
        return cls(step_budget, token_budget, max_context_tokens, max_context_tokens, max_context_tokens)


class Turn(msgspec.Struct):
    """What one turn left behind, before the run's identity is added to make a record."""

    started_at: float
    finished_at: float
    prompt_token_ids: list[int]
    token_ids: list[int]
    logprobs: list[float]
    text: str
    action: Action | None
    """None: the turn was cut before it was whole, so it is no action."""
    state_before: str
    state_after: str
    policy_version: int | None
    """The engine's label when the turn began. None: no token was sampled."""
    policy_version_end: int | None
    """The label when it ended: another one after a switch inside the turn."""
    observation: str | None = None
    """Raw, whatever the model reads of it. None: the environment did not answer."""
    observation_cut: ObservationCut | None = None
    """None: the model reads all of it."""
    tool_reward: float | None = None
    """`Transition.tool_reward`."""


class Episode:
    """See the module's docstring.

    Args:
        env: An environment; it is reset here.
        task_id, seed: What to reset it to.
        messages: System and user message as the dataset stores them. The user message must be what the environment
            says on reset, or the dataset was made by another version of it.
        observation_limit: What the model reads of a long observation. None: all of it.

    Raises:
        ContractViolation: ``transition.prompt`` when the two differ, or when the prompt is over its limit.
    """

    def __init__(
        self,
        env: AgentEnv,
        task_id: str,
        seed: int,
        messages: list[dict[str, Any]],
        renderer: ChatTemplateRenderer,
        parser: StrictParser,
        limits: Limits,
        observation_limit: ObservationLimit | None = None,
    ) -> None:
        observation = env.reset(task_id, seed)
        if observation != messages[-1]["content"]:
            raise ContractViolation(
                "transition.prompt", expected=observation, found=messages[-1]["content"], evidence=f"task {task_id}"
            )
        self.env = env
        self.messages = messages
        self.renderer = renderer
        self.parser = parser
        self.limits = limits
        self.observation_limit = observation_limit
        schemas = env.tools()
        self.tools = [schema.as_openai() for schema in schemas]
        self.oracle_tools = [schema.name for schema in schemas if schema.is_oracle]
        self._parameters = {schema.name: schema.parameters for schema in schemas}
        self.prompt_ids = renderer.initial(messages, self.tools)
        self.response_ids: list[int] = []
        self.response_mask: list[int] = []
        self.response_logprobs: list[float] = []
        self.turns: list[Turn] = []
        self.termination: Termination | None = None
        self.error: str | None = None
        self.base_state = env.state_hash()
        self._turn_started_at = time.time()
        if len(self.prompt_ids) > limits.max_prompt_tokens:
            raise ContractViolation(
                "transition.prompt",
                expected=f"at most {limits.max_prompt_tokens} tokens",
                found=len(self.prompt_ids),
                evidence=f"task {task_id}",
                remedy="raise data.max_prompt_length or shorten the prompt; prompts are never truncated",
            )

    @property
    def context_ids(self) -> list[int]:
        """Everything the next turn is conditioned on."""
        return self.prompt_ids + self.response_ids

    @property
    def max_new_tokens(self) -> int:
        """How many tokens the next turn may have."""
        return min(self._task_tokens_left(), self._harness_tokens_left())

    @property
    def policy_versions(self) -> list[int]:
        """Every version that the engine's labels name, in order. More than one: the episode is mixed, since a policy
        lease pins one for the whole episode."""
        labels = {label for turn in self.turns for label in (turn.policy_version, turn.policy_version_end)}
        return sorted(label for label in labels if label is not None)

    def sampled(
        self,
        token_ids: list[int],
        logprobs: list[float],
        policy_version: int | None,
        policy_version_end: int | None = None,
    ) -> Action | None:
        """Take one sampled turn.

        Args:
            token_ids: The engine's ids, end-of-turn token included.
            logprobs: Log probability of each id under the distribution that sampled it.
            policy_version: The engine's label of the weights when the turn began. None: no engine sampled it.
            policy_version_end: The label when it ended. None: the weights cannot change inside a turn.

        Returns:
            The action to step the environment with, or None when the turn was cut and the episode ended.

        Raises:
            ContractViolation: ``transition.logprobs`` when they are missing, unaligned or not finite.
        """
        if len(logprobs) != len(token_ids) or not all(math.isfinite(value) for value in logprobs):
            raise ContractViolation(
                "transition.logprobs",
                expected=f"{len(token_ids)} finite log probabilities",
                found=f"{len(logprobs)}, {sum(not math.isfinite(value) for value in logprobs)} not finite",
                remedy="set actor_rollout_ref.rollout.calculate_log_probs=True",
            )
        whole = bool(token_ids) and token_ids[-1] == self.renderer.end_of_turn_id
        text = self.renderer.decode_turn(token_ids)
        action = self.parser.parse(text, self._parameters) if whole else None
        state = self.turns[-1].state_after if self.turns else self.base_state
        self.turns.append(
            Turn(
                started_at=self._turn_started_at,
                finished_at=time.time(),
                prompt_token_ids=self.context_ids,
                token_ids=token_ids,
                logprobs=logprobs,
                text=text,
                action=action,
                state_before=state,
                state_after=state,
                policy_version=policy_version,
                policy_version_end=policy_version if policy_version_end is None else policy_version_end,
            )
        )
        exhausted = self._exhausted_code()
        self._extend(token_ids, mask=1, logprobs=logprobs)
        if action is None:
            self.termination = exhausted
        return action

    def stepped(self, transition: Transition) -> None:
        """Take the environment's answer to the last action."""
        turn = self.turns[-1]
        turn.finished_at = time.time()
        turn.observation = transition.observation
        turn.state_after = transition.state_version
        turn.tool_reward = transition.tool_reward
        self._turn_started_at = turn.finished_at
        if transition.termination is not None:
            self.termination = transition.termination
        elif len(self.turns) >= self.limits.step_budget:
            self.termination = Termination.TASK_BUDGET_EXHAUSTED
        elif self.limits.max_steps is not None and len(self.turns) >= self.limits.max_steps:
            self.termination = Termination.MAX_STEP_TRUNCATION
        else:
            ids = self.renderer.observation(self._shown(turn, transition.observation), self.tools)
            if len(ids) >= self.max_new_tokens:
                self.termination = self._exhausted_code()
                return
            self._extend(ids, mask=0, logprobs=[0.0] * len(ids))

    def abort(self, termination: Termination, error: str) -> None:
        """End the episode for a reason that is not the policy's: censored, never scored."""
        assert not termination.is_outcome, f"{termination} is an outcome, not an abort"
        self.termination = termination
        self.error = error

    def _shown(self, turn: Turn, raw: str) -> str:
        if self.observation_limit is None:
            return raw
        shown, turn.observation_cut = self.observation_limit.cut(raw)
        return shown

    def _extend(self, ids: list[int], mask: int, logprobs: list[float]) -> None:
        self.response_ids = self.response_ids + ids
        self.response_mask = self.response_mask + [mask] * len(ids)
        self.response_logprobs = self.response_logprobs + logprobs

    def _task_tokens_left(self) -> int:
        return self.limits.token_budget - len(self.response_ids)

    def _harness_tokens_left(self) -> int:
        context = self.limits.max_context_tokens - len(self.prompt_ids) - len(self.response_ids)
        return min(context, self.limits.max_response_tokens - len(self.response_ids))

    def _exhausted_code(self) -> Termination:
        """Which limit a too long turn meets first: the task's own, or one that the task did not declare."""
        declared = self._task_tokens_left() <= self._harness_tokens_left()
        return Termination.TASK_BUDGET_EXHAUSTED if declared else Termination.MAX_TOKEN_TRUNCATION
