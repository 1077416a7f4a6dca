"""`agent-contracts controls` and `agent-contracts sft-only`: the arms of the evidence, compared and made."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from recipe.agent_contracts.commands.output import RunFolder, console, fail
from recipe.agent_contracts.errors import ContractViolation

if TYPE_CHECKING:
    from recipe.agent_contracts.evaluation.controls import Controls


def controls(
    folder: Annotated[Path, typer.Argument(help="Folder of one run folder an arm", exists=True, file_okay=False)],
) -> None:
    """Gains of the arms over the frozen policy; writes audits/controls.json into the normal arm's folder."""
    from recipe.agent_contracts.evaluation.controls import judge_controls

    try:
        found = judge_controls(folder)
    except (ContractViolation, ValueError, OSError) as error:
        fail(str(error), code=2)
    console.print(_table(found))
    for line in [*found.unfinished, *found.verdict]:
        console.print(line, markup=False, soft_wrap=True)


def sft_only(
    run: RunFolder,
    out: Annotated[Path, typer.Argument(help="New folder for model/ and sft.json")],
    seed: Annotated[int, typer.Option(help="Of the demonstrations")] = 1,
) -> None:
    """Train the SFT-only control of a run: its initial policy on as many tokens as its updates used."""
    from recipe.agent_contracts.evaluation.sft_only import make_sft_only

    columns = (BarColumn(), TextColumn("{task.completed}/{task.total} tokens, loss {task.fields[loss]:.3f}"))
    with Progress(TextColumn("imitation"), *columns, console=console) as bar:
        task = bar.add_task("", loss=math.nan)
        try:
            made = make_sft_only(
                run, out, seed, lambda done, wanted, loss: bar.update(task, completed=done, total=wanted, loss=loss)
            )
        except (ContractViolation, OSError) as error:
            fail(str(error), code=2)
    console.print(
        f"{out}: {made.trained_tokens} action tokens in {made.num_steps} steps at learning rate "
        f"{made.learning_rate:g}, for {made.matched_tokens} of the run",
        soft_wrap=True,
    )


def _table(found: Controls) -> Table:
    title = f"held-out success over {found.num_tasks} tasks and gain over {found.baseline}, 95% bootstrap intervals"
    columns = ("arm", "steps", "attempts", "temperature 1", "gain", "greedy", "greedy gain", "no verdict")
    table = Table(*columns, title=title, box=None, title_justify="left")
    for arm in found.arms:
        gain = {decoding: value.text("+") for decoding, value in arm.gain.items()}
        table.add_row(
            arm.name,
            str(arm.num_steps),
            str(arm.num_attempts),
            arm.success["temperature_1"].text(),
            gain.get("temperature_1", "-"),
            arm.success["greedy"].text(),
            gain.get("greedy", "-"),
            str(arm.unverified),
        )
    return table
