"""`agent-contracts gates`: the go/no-go gates of a run. Exit code 1 when one failed or was not measured."""

from __future__ import annotations

import typer
from rich.markup import escape
from rich.table import Table

from recipe.agent_contracts.commands.output import RunFolder, console, fail
from recipe.agent_contracts.errors import ContractViolation


def gates(run: RunFolder) -> None:
    """Judge a run by G01 to G19, with figure, tolerance and evidence; writes gates.json into its folder."""
    from recipe.agent_contracts.evaluation.gates import go, judge_run
    from recipe.agent_contracts.evaluation.gates.base import Status

    try:
        findings = judge_run(run)
    except (ContractViolation, ValueError, OSError) as error:
        fail(str(error), code=2)
    colors = {Status.PASSED: "green", Status.FAILED: "red", Status.NOT_MEASURED: "yellow", Status.NOT_APPLICABLE: "dim"}
    table = Table("gate", "name", "status", "figure", "tolerance", "evidence", box=None)
    for found in findings:
        color = colors[found.status]
        texts = (escape(text) for text in (found.figure, found.tolerance, found.evidence))
        table.add_row(found.gate, found.name, f"[{color}]{found.status}[/{color}]", *texts)
    console.print(table)
    verdict = go(findings)
    console.print("[green]go[/green]" if verdict else "[red]no go[/red]: a gate that was not measured is not passed")
    raise typer.Exit(0 if verdict else 1)
