"""`agent-contracts audit`: which episodes a human should look at."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from recipe.agent_contracts.commands.output import RunFolder, console, fail
from recipe.agent_contracts.errors import ContractViolation

app = typer.Typer(no_args_is_help=True, help="Judge the verifier: what humans should look at.")


@app.command()
def queue(
    run: RunFolder,
    random_share: Annotated[float, typer.Option(min=0.0, max=1.0, help="Of all episodes, whatever they look like")] = (
        0.02
    ),
    seed: Annotated[int, typer.Option(help="Of the random share")] = 0,
) -> None:
    """The episodes to be looked at, riskiest first; the same list whenever it is asked for."""
    from recipe.agent_contracts.verification.audit_queue import audit_queue

    try:
        queued = audit_queue(run, random_share, seed)
    except ContractViolation as error:
        fail(str(error), code=2)
    table = Table("trajectory", "task", "risks", "success", "violations", "damage", "tokens", box=None)
    for found in queued:
        vector = found.reward_components
        terms = [f"{vector[name]:g}" for name in ("task_success", "policy_violation", "collateral_damage")]
        table.add_row(found.trajectory_id, found.task_id, ", ".join(found.risks), *terms, str(found.num_action_tokens))
    console.print(table)
    console.print(f"{len(queued)} episodes queued; agent-contracts trace show RUN TRAJECTORY shows one")
