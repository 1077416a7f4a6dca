"""`agent-contracts quarantine`: the episodes whose measurement could not be trusted, and their release."""

from __future__ import annotations

from typing import Annotated, get_args

import msgspec
import typer
from rich.table import Table

from recipe.agent_contracts.commands.output import RunFolder, console, fail
from recipe.agent_contracts.errors import ContractViolation

app = typer.Typer(no_args_is_help=True, help="Episodes that were neither scored nor trained on, with their evidence.")
TrajectoryId = Annotated[str, typer.Argument(help="<group id>_<session>, as `quarantine ls` prints it")]


@app.command("ls")
def list_episodes(run: RunFolder) -> None:
    """Every quarantined episode, and counts by reason, family, length and reward."""
    from recipe.agent_contracts.verification.quarantine import BY, Quarantine, count

    held = Quarantine(run).held()
    table = Table("trajectory", "family", "tokens", "reason", "what was found", "released", box=None)
    for one in held:
        entry = one.entry
        released = "" if one.release is None else f"by {one.release.by}"
        table.add_row(entry.trajectory_id, entry.family, entry.length, entry.reason, entry.error, released)
    if held:
        console.print(table)
    for by in get_args(BY):
        found = ", ".join(f"{value} {number}" for value, number in sorted(count(held, by).items()))
        console.print(f"by {by}: {found or 'none'}", markup=False)
    console.print(f"{sum(one.release is None for one in held)} in quarantine, {len(held)} ever")


@app.command()
def show(run: RunFolder, trajectory: TrajectoryId) -> None:
    """One episode's entry and the final state that is the evidence."""
    from recipe.agent_contracts.transition.snapshots import BlobStore
    from recipe.agent_contracts.verification.quarantine import Quarantine

    held = [one for one in Quarantine(run).held() if one.entry.trajectory_id == trajectory]
    if not held:
        fail(f"{trajectory} is not in quarantine: agent-contracts quarantine ls {run}", code=2)
    for one in held:
        console.print_json(msgspec.json.encode(one).decode())
    state = BlobStore(run / "blobs").get(held[-1].entry.final_state_hash)
    console.print(f"final state, {len(state)} bytes:")
    console.print(state.decode(errors="backslashreplace"), markup=False, soft_wrap=True)


@app.command()
def release(
    run: RunFolder,
    trajectory: TrajectoryId,
    by: Annotated[str, typer.Option(help="Who decides")],
    why: Annotated[str, typer.Option(help="Why it was quarantined wrongly")],
) -> None:
    """Record that an episode was quarantined wrongly. It is not trained on: its policy is past."""
    from recipe.agent_contracts.verification.quarantine import Quarantine

    try:
        Quarantine(run).release(trajectory, by, why)
    except ContractViolation as error:
        fail(str(error), code=2)
    console.print(f"{trajectory} is released by {by}", markup=False)
