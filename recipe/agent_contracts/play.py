"""Plays one task with a model and without a trainer, so that an environment is debugged before GPUs are spent."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from recipe.agent_contracts import domains
from recipe.agent_contracts.generation import HuggingFacePolicy, play
from recipe.agent_contracts.transition.envs.terminal import generator, task
from recipe.agent_contracts.transition.episode import Episode, Limits
from recipe.agent_contracts.transition.parsers import DEFAULT, parser_named
from recipe.agent_contracts.transition.rendering import ChatTemplateRenderer
from recipe.agent_contracts.verification.process import VerifierProcess


class PlayableTask(msgspec.Struct, frozen=True):
    """A task as a dataset row holds it."""

    data_source: str
    task_id: str
    seed: int
    messages: list[dict[str, str]]
    task_json: str
    grader: dict[str, Any]


def find_task(name: str, seed: int) -> PlayableTask:
    """The task `<split>:<index>` of the generator, e.g. `train:0` or `heldout_known_style:7`.

    Raises:
        ValueError: naming the splits that exist.
    """
    split, _, index = name.partition(":")
    if split not in task.SPLITS or not index.isdecimal():
        raise ValueError(f"task {name!r} is not <split>:<index> with a split of {', '.join(task.SPLITS)}")
    scenario = next(islice(generator.scenarios(split, seed), int(index), None))
    return PlayableTask(
        data_source=f"terminal/{split}",
        task_id=scenario.task.task_id,
        seed=scenario.task.seed,
        messages=task.messages(scenario.task),
        task_json=task.to_json(scenario.task),
        grader=json.loads(task.to_json(scenario.grader)),
    )


def open_episode(playable: PlayableTask, renderer: ChatTemplateRenderer, max_context_tokens: int) -> Episode:
    """A fresh episode whose only limits are the task's own budgets and the model's context."""
    domain = domains.domain_of(playable.data_source)
    env, opened = domains.load(domain.environment)(playable.task_json)
    limits = Limits(
        step_budget=opened.step_budget,
        token_budget=opened.token_budget,
        max_prompt_tokens=max_context_tokens,
        max_response_tokens=max_context_tokens,
        max_context_tokens=max_context_tokens,
    )
    parser = parser_named(DEFAULT)
    return Episode(env, playable.task_id, playable.seed, playable.messages, renderer, parser, limits)


def play_task(playable: PlayableTask, model: Path, tokenizer: Path, n: int, temperature: float, seed: int) -> int:
    """Play `n` episodes, print each as a transcript with mask and score, and return how many succeeded."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(tokenizer)
    renderer = ChatTemplateRenderer(loaded)
    network = AutoModelForCausalLM.from_pretrained(model).eval()
    limit = network.config.max_position_embeddings
    episodes = [open_episode(playable, renderer, limit) for _ in range(n)]
    pad = loaded.pad_token_id if loaded.pad_token_id is not None else loaded.eos_token_id
    play(episodes, HuggingFacePolicy(network, renderer.end_of_turn_id, pad, temperature, seed))
    verifier = VerifierProcess(domains.domain_of(playable.data_source).verifier, timeout_seconds=20.0)
    console = Console(highlight=False)
    console.print(f"[bold]{playable.task_id}[/bold]")
    for message in playable.messages:
        console.print(f"[dim]{message['role']}[/dim]\n{message['content']}", markup=True)
    successes = 0
    try:
        for number, episode in enumerate(episodes):
            score = None
            if episode.termination is not None and episode.termination.is_outcome:
                score = verifier.score(playable.grader, episode.env.export_state())
                successes += int(score.task_success == 1.0)
            _print_episode(console, number, episode, score)
    finally:
        verifier.close()
    console.print(f"\n{successes} of {n} succeeded at temperature {temperature}")
    return successes


def _print_episode(console: Console, number: int, episode: Episode, score: Any) -> None:
    console.rule(f"episode {number}")
    for index, turn in enumerate(episode.turns):
        reason = turn.action.invalid_reason if turn.action is not None else "cut"
        console.print(f"[bold]turn {index}[/bold]" + (f" [red]{reason}[/red]" if reason else ""))
        console.print(turn.text, markup=False, style="green")
        logprob = sum(turn.logprobs)
        console.print(f"{len(turn.token_ids)} tokens, log probability {logprob:.2f}", style="dim")
        if turn.observation is not None:
            console.print(turn.observation, markup=False, style="cyan")
    console.print("mask " + "".join(map(str, episode.response_mask)), style="dim")
    vector = "no score (censored)" if score is None else msgspec.to_builtins(score)
    console.print(f"[bold]{episode.termination}[/bold] {vector}")
