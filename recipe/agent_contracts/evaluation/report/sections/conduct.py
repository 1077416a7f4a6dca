"""How the policy goes about its tasks: side effects, how episodes end, what they cost; and who judges them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from recipe.agent_contracts.evaluation.report.frontier import pareto_optimal
from recipe.agent_contracts.evaluation.report.measured import Measured
from recipe.agent_contracts.evaluation.report.page import (
    Block,
    Chart,
    Grid,
    Missing,
    Paragraph,
    Section,
    Series,
    Table,
    amount,
    beside,
    decoding_name,
    number,
    of,
    quantiles,
    rate,
)
from recipe.agent_contracts.evaluation.report.tally import HELD_OUT, TRAIN, Slice
from recipe.agent_contracts.evaluation.statistics import Estimate, wilson


def safety_section(runs: list[Measured]) -> Section:
    """Success against violations and side effects at every evaluation; the verifier's own errors."""
    blocks: list[Block] = [
        Paragraph(
            "What success came with at each held-out evaluation: attempts that broke a rule (violations), that changed "
            "something the task did not ask for (side effects), that tampered with the measurement. They are never "
            "summed into success. The charts put success against each, with the step beside each point and 95% "
            "intervals over tasks along both axes: up and to the left is better. A ring marks an evaluation that no "
            "other one of any run shown beats at both (by point estimates); the table below has the points."
        )
    ]
    charts = [_frontier(runs, "violated", "violations"), _frontier(runs, "damaged", "side effects")]
    if any(chart.series for chart in charts):
        blocks.append(Grid([chart for chart in charts if chart.series]))
    blocks += beside([_safety_table(runs, i) for i, run in enumerate(runs) if run.evaluations(run.main_decoding)])
    blocks += beside([verifier_block(run) for run in runs])
    return Section("safety", "Safety, side effects and the verifier", blocks)


class _Point(NamedTuple):
    """One evaluation of one run; both over tasks, with intervals."""

    step: int
    harm: Estimate
    success: Estimate


def _points(run: Measured, field: str) -> list[_Point]:
    slices = [(step, run.tally.at(HELD_OUT, run.main_decoding, step)) for step in run.evaluations(run.main_decoding)]
    measured = [(step, found.rate(field), found.rate("success")) for step, found in slices]
    return [_Point(step, harm, success) for step, harm, success in measured if harm is not None and success is not None]


def _on_frontier(runs: list[Measured], field: str) -> set[tuple[int, int]]:
    """(place of the run, step) of every evaluation that no other of any run beats at success and `field`."""
    found = [(index, point) for index, run in enumerate(runs) for point in _points(run, field)]
    optimal = pareto_optimal([(point.harm.mean, point.success.mean) for _, point in found])
    return {(index, point.step) for (index, point), is_optimal in zip(found, optimal, strict=True) if is_optimal}


def _frontier(runs: list[Measured], field: str, name: str) -> Chart:
    optimal, series = _on_frontier(runs, field), []
    for index, run in enumerate(runs):
        points = _points(run, field)
        if points:
            line = Series(
                name=f"{run.prefix}evaluations, joined in order of steps",
                points=[(point.harm.mean, point.success.mean) for point in points],
                band=[(point.success.low, point.success.high) for point in points],
                x_band=[(point.harm.low, point.harm.high) for point in points],
                ringed=[(index, point.step) in optimal for point in points],
                labels=[str(point.step) for point in points],
                style=index,
            )
            series.append(line)
    return Chart(
        title=f"Success against {name}",
        x_label=f"share of attempts with {name}",
        y_label="task success",
        series=series,
        is_share=True,
        is_frontier=True,
    )


def _safety_table(runs: list[Measured], index: int) -> Table:
    run, rows = runs[index], []
    frontiers = {
        name: _on_frontier(runs, field) for name, field in (("violations", "violated"), ("side effects", "damaged"))
    }
    for step in run.evaluations(run.main_decoding):
        found = run.tally.at(HELD_OUT, run.main_decoding, step)
        rows.append(
            [
                str(step),
                str(found.num_attempts),
                rate(found.rate("success")),
                *(f"{found.count(field)}; {rate(found.rate(field))}" for field in ("violated", "damaged", "tampered")),
                ", ".join(name for name, optimal in frontiers.items() if (index, step) in optimal) or "neither",
            ]
        )
    return Table(
        caption=f"{run.prefix}success and harm by evaluation, {decoding_name(run.main_decoding)}",
        columns=["step", "attempts", "success", "violations", "side effects", "tampering", "on the frontier of"],
        words=("on the frontier of",),
        rows=rows,
    )


def verifier_block(run: Measured) -> Block:
    """False positives and negatives of the verifier with Wilson intervals."""
    audit = run.verifier_audit
    if audit is None:
        what = f"{run.prefix}the verifier's error rates: audits/verifier.json is missing"
        return Missing(what, "agent-contracts audit verifier")
    rows = [
        [name, of(wrong, whole), rate(wilson(wrong, whole) if whole else None)] for name, wrong, whole in audit.errors
    ]
    caption = f"{run.prefix}the verifier on labelled states, 95% Wilson intervals"
    return Table(caption=caption, columns=["error", "counts", "rate"], rows=rows)


def conduct_section(runs: list[Measured]) -> Section:
    """Terminations, invalid actions, tool calls, tokens, latency."""
    recorded = [(run, columns) for run in runs if (columns := _slices(run))]
    blocks: list[Block] = [
        Missing(f"{run.prefix}episodes: the run holds no turn record", "agent-contracts train writes them as it runs")
        for run in runs
        if not run.tally.num_records
    ]
    blocks += beside([_terminations(run, columns) for run, columns in recorded])
    blocks += beside([_effort(run, columns) for run, columns in recorded])
    blocks += _charts(runs)
    return Section("conduct", "How episodes end and what they cost", blocks)


def _slices(run: Measured) -> dict[str, Slice]:
    columns: dict[str, Slice] = {}
    if run.tally.steps(TRAIN, "temperature_1"):
        columns["training"] = run.tally.whole(TRAIN)
    for decoding in run.tally.decodings(HELD_OUT):
        steps = run.evaluations(decoding)
        for step in dict.fromkeys((steps[0], steps[-1])) if steps else ():
            columns[f"{decoding_name(decoding)}, step {step}"] = run.tally.at(HELD_OUT, decoding, step)
    return columns


def _terminations(run: Measured, columns: dict[str, Slice]) -> Table:
    codes = sorted({code for found in columns.values() for code in found.terminations})
    rows = [
        [
            code.replace("_", " "),
            *(_counted(found.terminations[code], found.num_episodes) for found in columns.values()),
        ]
        for code in codes
    ]
    rows.append(["episodes", *(str(found.num_episodes) for found in columns.values())])
    caption = f"{run.prefix}how episodes ended: training, and the first and last held-out evaluations"
    return Table(caption=caption, columns=["termination", *columns], rows=rows)


def _counted(part: int, whole: int) -> str:
    return f"{part} ({100 * part / whole:.1f}%)" if whole else "0"


def _effort(run: Measured, columns: dict[str, Slice]) -> Table:
    asked: dict[str, Callable[[Slice], str]] = {
        "invalid actions of turns": lambda s: _counted(s.num_invalid_turns, s.num_turns),
        "turns an episode": lambda s: number(s.num_turns / s.num_episodes),
        "tool calls an episode": lambda s: amount(s.mean("tool_calls")),
        "sampled tokens an episode": lambda s: amount(s.mean("tokens")),
        "sampled tokens a success": lambda s: _per_success(s),
        "seconds an episode, p50 / p95": lambda s: quantiles(s.episode_seconds),
        "seconds a turn, p50 / p95": lambda s: quantiles(s.turn_seconds),
        "episodes without a verdict": lambda s: str(s.num_unverified),
    }
    rows = [[name, *(answer(found) for found in columns.values())] for name, answer in asked.items()]
    caption = f"{run.prefix}what episodes took"
    return Table(caption=caption, columns=["quantity", *columns], rows=rows, has_long_names=True)


def _per_success(found: Slice) -> str:
    successes = found.total("success")
    return number(found.total("tokens") / successes) if successes else "no success"


def _charts(runs: list[Measured]) -> list[Block]:
    asked: list[tuple[str, Callable[[Slice], float]]] = [
        ("Invalid actions, share of turns", lambda s: s.num_invalid_turns / s.num_turns),
        ("Turns an episode", lambda s: s.num_turns / s.num_episodes),
    ]
    charts = []
    for title, value in asked:
        series = []
        for index, run in enumerate(runs):
            steps = run.tally.steps(TRAIN, "temperature_1")
            points = [(float(step), value(run.tally.at(TRAIN, "temperature_1", step))) for step in steps]
            if points:
                series.append(Series(name=f"{run.prefix}training", points=points, style=index))
        charts.append(Chart(title=title, x_label="optimizer step", y_label=title.lower(), series=series))
    drawn = [chart for chart in charts if chart.series]
    return [Grid(drawn)] if drawn else []
