"""`agent-contracts replay`: exit code 0 when all came out as recorded, 1 at a divergence, 2 when it cannot be run."""

from __future__ import annotations

from typing import Annotated

import typer

from recipe.agent_contracts.commands.output import RunFolder, console, fail
from recipe.agent_contracts.errors import ContractViolation


def replay(
    run: RunFolder,
    trajectory: Annotated[str | None, typer.Option(help="Only this trajectory id")] = None,
) -> None:
    """Re-execute recorded actions and compare every observation, state hash and reward."""
    from recipe.agent_contracts.transition.replay import Replayer

    replayer = Replayer(run)
    num_episodes, diverged = 0, []
    try:
        for _, divergence in replayer.replay_run(only=trajectory):
            num_episodes += 1
            if divergence is not None:
                diverged.append(divergence)
    except (ContractViolation, ValueError) as error:
        fail(str(error), code=2)
    finally:
        replayer.close()
    if num_episodes == 0:
        fail(f"no such episode in {run}", code=2)
    if diverged:
        first = diverged[0]
        console.print(f"first divergence: {first.trajectory_id}, turn {first.turn}, {first.field}", markup=False)
        console.print(f"  recorded: {first.recorded!r}\n  replayed: {first.replayed!r}", markup=False)
    console.print(f"{num_episodes} episodes replayed, {len(diverged)} diverged")
    raise typer.Exit(1 if diverged else 0)
