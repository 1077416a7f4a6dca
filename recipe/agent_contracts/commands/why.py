"""`agent-contracts why`: from an update, an episode or a token to what caused it, and to what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recipe.agent_contracts.commands.output import RunFolder, console, fail
from recipe.agent_contracts.errors import ContractViolation

if TYPE_CHECKING:
    from recipe.agent_contracts.transcript import Line


def why(
    run: RunFolder,
    step: Annotated[int, typer.Option(min=1, help="Optimizer step")],
    trajectory: Annotated[str | None, typer.Option(help="One of its episodes; without it, all are listed")] = None,
    token: Annotated[int | None, typer.Option(min=0, help="One of the episode's sampled tokens, from 0")] = None,
) -> None:
    """Why an update moved a token: coefficient, group, verdict, state diff, policy; and what the update led to."""
    if token is not None and trajectory is None:
        fail("--token needs --trajectory", code=2)
    try:
        for style, line in _lines(run, step, trajectory, token):
            console.print(line, style=style, markup=False, soft_wrap=True)
    except (ContractViolation, ValueError) as error:
        fail(str(error), code=2)


def _lines(run: Path, step: int, trajectory: str | None, token: int | None) -> Iterator[Line]:
    from recipe.agent_contracts.why import cause, wording

    update, consequence = cause.explain_step(run, step)
    if trajectory is None:
        yield from wording.step_lines(update)
    else:
        episode = cause.explain_episode(run, update, trajectory)
        if token is None:
            yield from wording.episode_lines(update, episode, run)
        else:
            yield from wording.token_lines(update, episode, episode.token(token), run)
    yield from wording.consequence_lines(update, consequence)
