"""`agent-contracts report`: what a run shows as one HTML file, or two runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recipe.agent_contracts.commands.output import RunFolder, console, fail
from recipe.agent_contracts.errors import ContractViolation


def report(
    run: RunFolder,
    run_b: Annotated[
        Path | None, typer.Argument(help="A second run, beside the first", exists=True, file_okay=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="HTML file; report.html in the (second) run folder by default")
    ] = None,
) -> None:
    """Write report.html: verdict, gates, curves and causes from the run's records; one file that needs no network."""
    from recipe.agent_contracts.evaluation.report import FILE_NAME, measure, write_report

    folders = [run] if run_b is None else [run, run_b]
    # Beside the second run's own report, so that a comparison overwrites neither.
    default = FILE_NAME if run_b is None else f"report-against-{run.resolve().name}.html"
    path = out or folders[-1] / default
    try:
        write_report(measure(folders), path)
    except (ContractViolation, ValueError, OSError) as error:
        fail(str(error), code=2)
    console.print(f"{path}  {path.stat().st_size / 1e6:.1f} MB", soft_wrap=True)
