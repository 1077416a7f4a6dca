"""Plays one task with a model and without a trainer, so that an environment is debugged before GPUs are spent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from recipe.agent_contracts import domains
from recipe.agent_contracts.generation import HuggingFacePolicy, play
from recipe.agent_contracts.transition.episode import Episode, Limits
from recipe.agent_contracts.transition.parsers import DEFAULT, parser_named
from recipe.agent_contracts.transition.rendering import ChatTemplateRenderer
from recipe.agent_contracts.verification.process import VerifierProcess


def find_task(name: str, seed: int) -> dict[str, Any]:
    """Dataset row of the task `<domain>/<split>:<index>`, e.g. `terminal/train:0`.

    Raises:
        ValueError: when there is no such task, naming what there is.
    """
    source, _, index = name.partition(":")
    _, _, split = source.partition("/")
    if not split or not index.isdecimal():
        raise ValueError(f"task {name!r} is not <domain>/<split>:<index>, like terminal/train:0")
    finder = domains.domain_of(source).find_row
    if finder is None:
        raise ValueError(f"the domain of {source!r} gives no tasks by name")
    row: dict[str, Any] = domains.load(finder)(split, int(index), seed)
    return row


def open_episode(row: dict[str, Any], renderer: ChatTemplateRenderer, max_context_tokens: int) -> Episode:
    """A fresh episode whose only limits are the task's own budgets and the model's context."""
    info = row["extra_info"]
    env, task = domains.load(domains.domain_of(row["data_source"]).environment)(info["task"])
    limits = Limits.of_task(task.step_budget, task.token_budget, max_context_tokens)
    parser = parser_named(DEFAULT)
    return Episode(env, info["task_id"], info["seed"], row["prompt"], renderer, parser, limits)


def play_task(row: dict[str, Any], model: Path, tokenizer: Path, n: int, temperature: float, seed: int) -> int:
    """Play `n` episodes, print each as a transcript with mask and score, and return how many succeeded."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(tokenizer)
    renderer = ChatTemplateRenderer(loaded)
    network = AutoModelForCausalLM.from_pretrained(model).eval()
    limit = network.config.max_position_embeddings
    episodes = [open_episode(row, renderer, limit) for _ in range(n)]
    pad = loaded.pad_token_id if loaded.pad_token_id is not None else loaded.eos_token_id
    play(episodes, HuggingFacePolicy(network, renderer.end_of_turn_id, pad, temperature, seed))
    verifier = VerifierProcess(domains.domain_of(row["data_source"]).verifier, timeout_seconds=20.0)
    console = Console(highlight=False)
    console.print(f"[bold]{row['extra_info']['task_id']}[/bold]")
    for message in row["prompt"]:
        console.print(f"[dim]{message['role']}[/dim]\n{message['content']}", markup=True)
    grader = json.loads(row["reward_model"]["ground_truth"])
    successes = 0
    try:
        for number, episode in enumerate(episodes):
            score = None
            if episode.termination is not None and episode.termination.is_outcome:
                score = verifier.score(grader, episode.env.export_state())
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
    vector = "no score (censored)" if score is None else score.vector()
    console.print(f"[bold]{episode.termination}[/bold] {vector}")
