"""Terminal scenarios as episodes, and scripted demonstrations as the token ids that imitation trains on.

Both go through `Episode` and `ChatTemplateRenderer`, as every rollout does: what the policy imitates has the ids and
the mask that it will have when it acts.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from recipe.agent_contracts.transition.envs.terminal.demonstrations import demonstrate
from recipe.agent_contracts.transition.envs.terminal.env import TerminalEnv
from recipe.agent_contracts.transition.envs.terminal.generator import Scenario
from recipe.agent_contracts.transition.envs.terminal.task import messages
from recipe.agent_contracts.transition.episode import Episode, Limits
from recipe.agent_contracts.transition.parsers import DEFAULT, parser_named
from recipe.agent_contracts.transition.rendering import ChatTemplateRenderer

_CONTEXT_TOKENS = 1024


class TokenSequence(NamedTuple):
    """One episode. Both lists have the episode's length."""

    ids: list[int]
    is_action: list[bool]
    """Whether the policy produced the token."""


def open_scenario(scenario: Scenario, renderer: ChatTemplateRenderer) -> Episode:
    """A fresh episode that only the task's own budgets end."""
    task = scenario.task
    limits = Limits.of_task(task.step_budget, task.token_budget, _CONTEXT_TOKENS)
    env = TerminalEnv({task.task_id: task})
    return Episode(env, task.task_id, task.seed, messages(task), renderer, parser_named(DEFAULT), limits)


def demonstration(scenario: Scenario, renderer: ChatTemplateRenderer, rng: Random) -> TokenSequence:
    """Play one scripted demonstration to its end and give its tokens."""
    episode = open_scenario(scenario, renderer)
    for text in demonstrate(scenario, rng).turns:
        ids = renderer.turn(text)
        action = episode.sampled(ids, logprobs=[0.0] * len(ids), policy_version=None)
        assert action is not None, "a scripted turn ends with the end-of-turn token"
        episode.stepped(episode.env.step(action))
        if episode.termination is not None:
            break
    is_action = [0] * len(episode.prompt_ids) + episode.response_mask
    return TokenSequence(episode.context_ids, [bool(value) for value in is_action])
