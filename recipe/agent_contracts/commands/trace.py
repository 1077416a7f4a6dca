"""`agent-contracts trace`: list, read, query and export a run's records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from recipe.agent_contracts.commands.output import RunFolder, console, fail
from recipe.agent_contracts.errors import ContractViolation

app = typer.Typer(no_args_is_help=True, help="List, read, query and export a run's records.")

LISTED = {
    "trajectory": "trajectory_id",
    "part": "partition",
    "step": "trainer_step",
    "task": "task_id",
    "decoding": "decoding",
    "turns": "num_turns",
    "tokens": "num_action_tokens",
    "invalid": "num_invalid_turns",
    "termination": "termination_reason",
    "success": "reward_components['task_success']",
    "error": "error",
}
"""Columns of `trace ls` and what each is in the `episodes` view."""


@app.command()
def ls(run: RunFolder, limit: Annotated[int, typer.Option(min=1, help="Episodes to list")] = 50) -> None:
    """The run's episodes, one a line, in the order they were started."""
    from recipe.agent_contracts.transition.trajectory.query import connect

    try:
        with connect(run) as connection:
            (total,) = connection.execute("SELECT count(*) FROM episodes").fetchone() or (0,)
            query = f"SELECT {', '.join(LISTED.values())} FROM episodes LIMIT {limit}"
            rows = connection.execute(query).fetchall()
    except (ContractViolation, ValueError) as error:
        fail(str(error), code=2)
    table = Table()
    for name in LISTED:
        table.add_column(name, no_wrap=name == "trajectory")
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row))
    console.print(table)
    console.print(f"{len(rows)} of {total} episodes")


@app.command()
def show(run: RunFolder, trajectory: Annotated[str, typer.Argument(help="Trajectory id, as `ls` lists it")]) -> None:
    """One episode as a transcript: turns, actions, observations, masks, log probabilities, state diffs."""
    from recipe.agent_contracts.transcript import transcript
    from recipe.agent_contracts.transition.replay import Replayer
    from recipe.agent_contracts.transition.trajectory import episodes

    try:
        turns = next((turns for turns in episodes(run) if turns[0].episode.trajectory_id == trajectory), None)
        if turns is None:
            fail(f"no episode {trajectory} in {run}", code=2)
        for style, line in transcript(Replayer(run), turns):
            console.print(line, style=style, markup=False)
    except ContractViolation as error:
        fail(str(error), code=2)


@app.command()
def sql(run: RunFolder, query: Annotated[str, typer.Argument(help="Over the views `turns` and `episodes`")]) -> None:
    """Query the records with duckdb SQL."""
    import duckdb

    from recipe.agent_contracts.transition.trajectory.query import connect

    try:
        with connect(run) as connection:
            answer = connection.sql(query)
            if answer is not None:
                answer.show(max_width=console.width, max_rows=10_000)
    except (ContractViolation, ValueError, duckdb.Error) as error:
        fail(str(error), code=2)


@app.command()
def export(run: RunFolder, out: Annotated[Path, typer.Argument(help="New Parquet file, one row a turn")]) -> None:
    """Write the run's turns to a Parquet file."""
    from recipe.agent_contracts.transition.trajectory.query import export_parquet

    try:
        num_rows = export_parquet(run, out)
    except (ContractViolation, ValueError, OSError) as error:
        fail(str(error), code=2)
    console.print(f"{num_rows} turns in {out}")
