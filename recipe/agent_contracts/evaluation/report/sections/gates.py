"""The nineteen gates, and what is wrong with the records themselves."""

from __future__ import annotations

from collections import Counter

from recipe.agent_contracts.evaluation.gates.base import Finding, Status
from recipe.agent_contracts.evaluation.report.measured import Measured
from recipe.agent_contracts.evaluation.report.page import Block, Missing, Paragraph, Section, State, Table

STATES: dict[str, State] = {"passed": "good", "failed": "bad", "not measured": "open", "not applicable": "plain"}
_NUM_LISTED = 20


def gates_section(runs: list[Measured]) -> Section:
    """Each gate with figure, tolerance and evidence."""
    blocks: list[Block] = [Paragraph("A gate that was not measured is not passed.")]
    for run in runs:
        if run.gates.problem is not None:
            remedy = f"agent-contracts gates {run.folder.name}"
            blocks.append(Missing(f"{run.prefix}the gates could not be judged: {run.gates.problem}", remedy))
    judged = [run for run in runs if run.gates.findings]
    if len(judged) == 2:
        blocks.append(_both(*judged))
    else:
        blocks += [_one(run) for run in judged]
    return Section("gates", "Gates", blocks)


def _one(run: Measured) -> Table:
    rows = [[_name(found), _word(found), found.figure, found.tolerance, found.evidence] for found in run.gates.findings]
    return Table(
        caption=f"{run.prefix}gates G01 to G19",
        columns=["gate", "status", "figure", "tolerance", "evidence"],
        rows=rows,
        words=("status", "figure", "tolerance", "evidence"),
        states=STATES,
    )


def _both(a: Measured, b: Measured) -> Table:
    columns = ["gate", "A: status", "A: figure or what is missing", "B: status", "B: figure or what is missing"]
    columns.append("tolerance")
    rows = []
    for left, right in zip(a.gates.findings, b.gates.findings, strict=True):
        told = [text for found in (left, right) for text in (_word(found), found.figure or found.evidence)]
        rows.append([_name(left), *told, left.tolerance])
    caption = "gates G01 to G19 of A and B"
    return Table(caption=caption, columns=columns, rows=rows, words=tuple(columns), states=STATES)


def _name(found: Finding) -> str:
    return f"{found.gate} {found.name.replace('_', ' ')}"


def _word(found: Finding) -> str:
    return found.status.replace("_", " ")


def counted(run: Measured) -> str:
    """`14 passed, 1 failed, 4 not measured of 19`."""
    counts = Counter(found.status for found in run.gates.findings)
    told = ", ".join(f"{counts[status]} {status.replace('_', ' ')}" for status in Status if counts[status])
    return f"{told} of {len(run.gates.findings)} gates"


def evidence_section(runs: list[Measured]) -> Section:
    """What was read, and what of it was not as it should be."""
    blocks: list[Block] = []
    for run in runs:
        blocks.append(
            Paragraph(
                f"{run.prefix}Read: {run.tally.num_records} turn records of {run.tally.num_episodes} episodes, "
                f"{len(run.updates)} update records, metrics of {len(run.metrics)} steps. Hash chains were checked."
            )
        )
        if run.torn:
            rows = [
                [f"{tail.path.rpartition('/')[2]}, line {tail.line}", f"{tail.num_bytes} bytes"] for tail in run.torn
            ]
            caption = f"{run.prefix}parts whose writer was killed inside a line; all before it was read"
            blocks.append(Table(caption=caption, columns=["part", "torn"], rows=rows))
        if run.not_finite:
            rows = [[name, str(step), str(value)] for step, name, value in run.not_finite[:_NUM_LISTED]]
            caption = (
                f"{run.prefix}{len(run.not_finite)} logged values are not finite and are in no figure"
                f"{'; the first are' if len(run.not_finite) > _NUM_LISTED else ''}"
            )
            blocks.append(Table(caption=caption, columns=["metric", "step", "value"], rows=rows))
        if run.groups is not None and run.groups.problems:
            rows = [[problem] for problem in run.groups.problems[:_NUM_LISTED]]
            caption = f"{run.prefix}{len(run.groups.problems)} problems of the ledger"
            blocks.append(Table(caption=caption, columns=["problem"], rows=rows))
    return Section("evidence", "What this report was read from", blocks)
