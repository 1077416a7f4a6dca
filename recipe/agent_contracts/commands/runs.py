"""`agent-contracts runs`: care of run folders."""

from __future__ import annotations

from typing import Annotated

import typer

from recipe.agent_contracts.commands.output import RunFolder, console, fail
from recipe.agent_contracts.errors import ContractViolation

app = typer.Typer(no_args_is_help=True, help="Care of run folders.")


@app.callback()
def runs() -> None:
    """Keeps `gc` a subcommand while it is the only one."""


@app.command()
def gc(
    run: RunFolder, dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, remove nothing")] = False
) -> None:
    """Remove blobs that no record of the run names. Blobs younger than an hour are kept."""
    from recipe.agent_contracts.transition.reachability import collect_garbage

    try:
        collected = collect_garbage(run, dry_run)
    except ContractViolation as error:
        fail(f"nothing was removed: {error}", code=2)
    verb = "would be removed" if dry_run else "removed"
    console.print(f"{collected.num_blobs} blobs {verb} ({collected.num_bytes / 1e6:.1f} MB)")
