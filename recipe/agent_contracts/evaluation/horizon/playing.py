"""Plays a script on the real environment, with padding that meets the token budget exactly.

An episode is played twice: with empty notes, which tells how many tokens are missing, and with notes that have them.
What it leaves is the evidence: the transcript and the sealed final state, never the script.
"""

from __future__ import annotations

import msgspec

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.evaluation.horizon.byte_tokens import ByteTokenizer
from recipe.agent_contracts.evaluation.horizon.design import Design
from recipe.agent_contracts.evaluation.horizon.script import Script
from recipe.agent_contracts.evaluation.horizon.workspace import task_of, turns_of
from recipe.agent_contracts.transition.actions import Action
from recipe.agent_contracts.transition.envs.terminal.env import TerminalEnv
from recipe.agent_contracts.transition.envs.terminal.task import Grader, messages
from recipe.agent_contracts.transition.episode import Episode, Limits
from recipe.agent_contracts.transition.parsers import DEFAULT, parser_named
from recipe.agent_contracts.transition.rendering import ChatTemplateRenderer
from recipe.agent_contracts.transition.termination import Termination

_FILLER = "all quiet, nothing to report here; "


class SeenTurn(msgspec.Struct, frozen=True):
    """One turn as a verifier may read it."""

    text: str
    """Everything the actor said, its claims included."""
    action: Action
    observation: str


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """All that verifiers are given of an episode. The script is not in it."""

    episode_id: str
    turns: tuple[SeenTurn, ...]
    final_state: bytes
    grader: Grader
    num_tokens: int
    """Of the whole context: prompt, turns and observations."""


def play(script: Script, design: Design, renderer: ChatTemplateRenderer) -> Evidence:
    """Play one episode whose context is `design.token_budget` tokens long.

    Raises:
        ContractViolation: ``evaluation.horizon`` when the work alone needs more tokens, or the episode did not end with
            its script.
    """
    notes = [""] * script.cell.num_padding_turns
    missing = design.token_budget - _play(script, notes, design.token_budget, renderer).num_tokens
    if missing < 0:
        needed = design.token_budget - missing
        raise ContractViolation(
            "evaluation.horizon", f"a token budget of {needed}", design.token_budget, f"{script.cell}"
        )
    share, rest = divmod(missing, len(notes))
    sizes = [share + (number < rest) for number in range(len(notes))]
    evidence = _play(script, [_filler(size) for size in sizes], design.token_budget, renderer)
    if evidence.num_tokens != design.token_budget or len(evidence.turns) != script.cell.horizon:
        expected = f"{design.token_budget} tokens in {script.cell.horizon} turns"
        found = f"{evidence.num_tokens} in {len(evidence.turns)}"
        raise ContractViolation("evaluation.horizon", expected, found, evidence.episode_id)
    return evidence


def _play(script: Script, notes: list[str], token_budget: int, renderer: ChatTemplateRenderer) -> Evidence:
    task, grader = task_of(script, notes, token_budget)
    # The prompt counts here, so that the task's own budget (of what follows it) never binds.
    limits = Limits.of_task(task.step_budget, token_budget + 1, 2 * token_budget)
    env = TerminalEnv({task.task_id: task})
    episode = Episode(env, task.task_id, task.seed, messages(task), renderer, parser_named(DEFAULT), limits)
    seen = []
    for text in turns_of(script):
        ids = renderer.turn(text)
        action = episode.sampled(ids, logprobs=[0.0] * len(ids), policy_version=None)
        assert action is not None, "a scripted turn ends with the end-of-turn token"
        transition = env.step(action)
        episode.stepped(transition)
        seen.append(SeenTurn(text, action, transition.observation))
    if episode.termination is not Termination.AGENT_FINISH:
        raise ContractViolation("evaluation.horizon", "an episode that finishes", episode.termination, task.task_id)
    return Evidence(
        episode_id=script.episode_id,
        turns=tuple(seen),
        final_state=env.export_state(),
        grader=grader,
        num_tokens=len(episode.context_ids),
    )


def _filler(size: int) -> str:
    return (_FILLER * (size // len(_FILLER) + 1))[:size]


def byte_renderer() -> ChatTemplateRenderer:
    """The renderer of the experiment."""
    return ChatTemplateRenderer(ByteTokenizer())
