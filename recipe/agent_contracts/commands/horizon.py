"""`agent-contracts horizon`: verifier errors by horizon at a fixed token budget, and the preregistered test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from recipe.agent_contracts.commands.output import console, fail
from recipe.agent_contracts.errors import ContractViolation

if TYPE_CHECKING:
    from recipe.agent_contracts.evaluation.horizon.experiment import Result


def horizon(
    episodes: Annotated[int, typer.Option(help="Episodes a cell (work, horizon, corruption); at least 50")] = 50,
    seed: Annotated[int, typer.Option(help="Of the scripts")] = 0,
    out: Annotated[Path | None, typer.Option(help="Also write the whole result there, as JSON")] = None,
) -> None:
    """Scripted: how actor and verifier errors go with the horizon; no model is needed."""
    from recipe.agent_contracts.evaluation.horizon.design import Design
    from recipe.agent_contracts.evaluation.horizon.experiment import run_experiment
    from recipe.agent_contracts.transition.snapshots import write_atomically

    try:
        design = Design(episodes_per_cell=episodes, seed=seed)
        with Progress(TextColumn("cells"), BarColumn(), MofNCompleteColumn(), console=console) as bar:
            task = bar.add_task("", total=len(list(design.cells())))
            result = run_experiment(design, lambda: bar.advance(task))
        if out is not None:
            write_atomically(out, msgspec.json.format(msgspec.json.encode(result)))
    except (ContractViolation, OSError) as error:
        fail(str(error), code=2)
    show(result)


def show(result: Result) -> None:
    """Print the figures by horizon, the tests, and what they are figures of."""
    console.print(_errors_table(result))
    console.print(_rewards_table(result))
    console.print(_tests_table(result))
    console.print(
        f"{result.num_episodes} episodes of {result.design.token_budget} tokens each; design {result.design_hash}. The "
        "actor and the stand-ins are scripts: this measures the protocol and the shipped verifier, not a model.",
        soft_wrap=True,
    )


def _errors_table(result: Result) -> Table:
    title = "errors by horizon, corruptions pooled, 95% Wilson intervals"
    columns = ("work", "turns", "actor error", "verifier", "false positive", "false negative")
    table = Table(*columns, title=title, box=None, title_justify="left")
    for row in result.by_horizon:
        for place, figures in enumerate(row.verifiers):
            head = (row.work.value, str(row.horizon), row.actor_error.text()) if place == 0 else ("", "", "")
            table.add_row(*head, figures.verifier, figures.false_positive.text(), figures.false_negative.text())
    return table


def _rewards_table(result: Result) -> Table:
    title = "reward without being right, by horizon; Brier score where a verifier states probabilities"
    columns = (
        "work",
        "turns",
        "verifier",
        "rewarded wrong, of all",
        "rewarded, of cheating",
        "stated",
        "right",
        "Brier",
    )
    table = Table(*columns, title=title, box=None, title_justify="left")
    for row in result.by_horizon:
        for place, figures in enumerate(row.verifiers):
            head = (row.work.value, str(row.horizon)) if place == 0 else ("", "")
            found = figures.calibration
            shares = () if found is None else (f"{found.mean_probability:.3f}", f"{found.share_right:.3f}")
            brier = () if found is None else (found.brier.text(),)
            rates = (figures.rewarded_wrong.text(), figures.hacks_rewarded.text())
            table.add_row(*head, figures.verifier, *rates, *shares, *brier)
    return table


def _tests_table(result: Result) -> Table:
    confidence = result.tests[0].result.confidence
    title = f"preregistered tests, each bound one-sided at {confidence:.4f} ({len(result.tests)} tests)"
    table = Table("work", "verifier", "error", "growth (bound)", "bend (bound)", "result", title=title, box=None)
    table.title_justify = "left"
    for test in result.tests:
        contrasts = (test.result.growth, test.result.bend)
        told = ["-" if c is None else f"{c.value:+.3f} ({c.lower_bound:+.3f})" for c in contrasts]
        table.add_row(test.work.value, test.verifier, test.error, *told, test.words)
    return table
