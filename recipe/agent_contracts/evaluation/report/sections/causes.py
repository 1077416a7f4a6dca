"""Why: every update with a place to link to, and for the last one the tokens that it pushed hardest.

The lines are those of `agent-contracts why`; the page adds nothing to them.
"""

from __future__ import annotations

from collections.abc import Iterable

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.evaluation.report.measured import Measured
from recipe.agent_contracts.evaluation.report.page import Block, Fold, Lines, Missing, Paragraph, Section, Table, number
from recipe.agent_contracts.evaluation.report.tally import HELD_OUT
from recipe.agent_contracts.transcript import Line
from recipe.agent_contracts.update.record import UpdateRecord, UpdateRow
from recipe.agent_contracts.why.cause import consequence_of, explain_episode
from recipe.agent_contracts.why.wording import consequence_lines, step_lines, token_lines

NUM_EACH_WAY = 2
"""Episodes shown that were pushed up hardest, and as many that were pushed down."""


def why_section(runs: list[Measured]) -> Section:
    """A table of updates with anchors, and the causes of the last."""
    blocks: list[Block] = []
    for run in runs:
        if not run.updates:
            blocks.append(Missing(f"{run.prefix}causes: the run made no update", "agent-contracts train"))
            continue
        blocks += [_updates_table(run), *_last_update(run)]
    return Section("why", "Why: from the gradient back to the experience", blocks)


def anchor(run: Measured, step: int) -> str:
    """The id of a step's row: `step-7`, `B-step-7`."""
    return f"{run.label}-step-{step}" if run.label else f"step-{step}"


def _updates_table(run: Measured) -> Fold:
    rows = [_update_row(run, update) for update in run.updates]
    table = Table(
        caption=(
            f"{run.prefix}updates, and held-out success of the version that each made; a row can be linked to as "
            f"#{anchor(run, run.updates[-1].step)}"
        ),
        columns=[
            "step",
            "versions",
            "episodes",
            "groups",
            "with a coefficient",
            "mean return",
            "largest coefficient",
            "smallest coefficient",
            "held-out success",
        ],
        rows=rows,
        anchors=[anchor(run, update.step) for update in run.updates],
    )
    return Fold(f"{run.prefix}all {len(rows)} updates", [table], is_open=len(rows) <= 50)


def _update_row(run: Measured, update: UpdateRecord) -> list[str]:
    pushes = [push for row in update.rows for push in _extremes(row)]
    made = run.tally.at(HELD_OUT, run.main_decoding, update.output_policy_version).mean("success")
    return [
        str(update.step),
        f"{update.input_policy_version} to {update.output_policy_version}",
        str(len(update.rows)),
        str(len({row.group_id for row in update.rows})),
        str(sum(any(row.advantages) for row in update.rows)),
        number(sum(row.episode_return for row in update.rows) / max(len(update.rows), 1)),
        f"{max(pushes, default=0.0):+.4g}",
        f"{min(pushes, default=0.0):+.4g}",
        "not evaluated" if made is None else number(made.mean),
    ]


def _extremes(row: UpdateRow) -> tuple[float, float]:
    return row.weight * min(row.advantages), row.weight * max(row.advantages)


def _last_update(run: Measured) -> list[Block]:
    update = run.updates[-1]
    up = sorted(update.rows, key=lambda row: _extremes(row)[1], reverse=True)
    down = sorted(update.rows, key=lambda row: _extremes(row)[0])
    chosen = [(row, True) for row in up[:NUM_EACH_WAY] if _extremes(row)[1] > 0]
    chosen += [(row, False) for row in down[:NUM_EACH_WAY] if _extremes(row)[0] < 0]
    intro = (
        f"{run.prefix}Step {update.step}, the last update. Below are the episodes whose tokens it pushed up and down "
        "hardest, each by its token with the largest coefficient. Any other: "
        f"agent-contracts why {run.folder.name} --step {update.step} --trajectory ... --token ..."
    )
    blocks: list[Block] = [Paragraph(intro)]
    if not chosen:
        blocks.append(Paragraph("Every coefficient of this update is 0: no group's returns differed."))
    blocks += [_cause(run, update, row, up) for row, up in chosen]
    blocks.append(Fold(f"{run.prefix}every episode of step {update.step}", [_lines(step_lines(update))]))
    blocks.append(_lines(consequence_lines(update, consequence_of(run.folder, update))))
    return blocks


def _cause(run: Measured, update: UpdateRecord, row: UpdateRow, up: bool) -> Block:
    pick = max if up else min
    token = row.advantages.index(pick(row.advantages)) if len(row.advantages) > 1 else 0
    push = _extremes(row)[1 if up else 0]
    summary = f"pushed {'up' if up else 'down'}, coefficient {push:+.4g}: {row.trajectory_id}"
    try:
        episode = explain_episode(run.folder, update, row.trajectory_id)
        return Fold(summary, [_lines(token_lines(update, episode, episode.token(token), run.folder))])
    except (ContractViolation, ValueError, OSError) as error:
        return Missing(f"{summary}: {error}", f"agent-contracts why {run.folder.name} --step {update.step}")


def _lines(lines: Iterable[Line]) -> Lines:
    return Lines(list(lines))
