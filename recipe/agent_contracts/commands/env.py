"""`agent-contracts env`: what an environment author runs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from recipe.agent_contracts.commands.output import console, fail
from recipe.agent_contracts.errors import ContractViolation

app = typer.Typer(no_args_is_help=True, help="Test an environment against the transition contract.")


@app.callback()
def environments() -> None:
    """Test an environment against the transition contract."""


@app.command()
def check(
    environment: Annotated[str, typer.Argument(help="module:Class with contract_cases(), see docs/environments.md")],
) -> None:
    """Run the conformance suite; exit code 1 when a property fails, 2 when there is nothing to test."""
    from recipe.agent_contracts.domains import load
    from recipe.agent_contracts.transition.conformance import Verdict, cases_of, check_cases

    # A console script's path starts at its own folder; the author's module is in the folder they are in.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        report = check_cases(cases_of(load(environment)))
    except (ValueError, ContractViolation) as error:
        fail(str(error), code=2)
    claims = report.capabilities
    console.print(
        f"{environment} claims {claims.snapshot_kind} snapshots, restore={claims.restore}, fork={claims.fork}, "
        f"exact_replay={claims.exact_replay}"
    )
    table = Table("property", "verdict", "first divergence", box=None)
    for finding in report.findings:
        color = {Verdict.HOLDS: "green", Verdict.FAILS: "red", Verdict.NOT_CLAIMED: "yellow"}[finding.verdict]
        table.add_row(finding.property, f"[{color}]{finding.verdict}[/{color}]", escape(finding.divergence))
    console.print(table)
    raise typer.Exit(1 if report.failed else 0)
