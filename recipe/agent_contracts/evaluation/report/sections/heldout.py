"""What the policy can do on tasks that it was not trained on: success, repeated attempts, retained skills."""

from __future__ import annotations

from collections.abc import Iterator

from recipe.agent_contracts.evaluation.report.measured import SAMPLED, Measured
from recipe.agent_contracts.evaluation.report.page import (
    Block,
    Chart,
    Grid,
    Missing,
    Paragraph,
    Section,
    Series,
    Table,
    beside,
    decoding_name,
    rate,
    suite_name,
)
from recipe.agent_contracts.evaluation.report.tally import (
    ALL_SUITES,
    HELD_OUT,
    TaskKey,
    estimate,
    is_retain,
    paired,
    share,
)
from recipe.agent_contracts.evaluation.statistics import Estimate

Means = dict[TaskKey, float]
EVALUATE = "train with trainer.val_before_train=True and trainer.test_freq above 0"
INTERVALS = (
    "Intervals are 95%, by bootstrap over tasks with each task's attempts kept together; where every task agrees on 0 "
    "or 1 the interval is Wilson's over tasks. Differences are paired by task. Attempts without a verdict are in no "
    "mean."
)


def heldout_section(runs: list[Measured]) -> Section:
    """Before and after, by decoding and suite; repeated attempts."""
    blocks: list[Block] = [Paragraph(INTERVALS)]
    blocks += beside([_success_table(run) if run.tally.decodings(HELD_OUT) else _no_evaluation(run) for run in runs])
    blocks += beside([_repeats_table(run) for run in runs if run.evaluations()])
    return Section("heldout", "Held-out success", blocks)


def _no_evaluation(run: Measured) -> Missing:
    return Missing(f"{run.prefix}held-out success: the run holds no held-out episode", EVALUATE)


def _success_table(run: Measured) -> Table:
    rows = []
    for decoding in run.tally.decodings(HELD_OUT):
        for suite in run.tally.suites(HELD_OUT, decoding):
            if not is_retain(suite):
                rows.append(_success_row(run, decoding, suite))
    return Table(
        caption=f"{run.prefix}task success at the first and the last held-out evaluation",
        columns=["suite and decoding", "tasks", "attempts", "first", "last", "last - first", "no verdict"],
        rows=rows,
    )


def _success_row(run: Measured, decoding: str, suite: str) -> list[str]:
    steps = run.tally.steps(HELD_OUT, decoding, suite)
    first, last = (run.tally.at(HELD_OUT, decoding, step, suite) for step in (steps[0], steps[-1]))
    gain = paired(first.task_means("success"), last.task_means("success")) if len(steps) > 1 else None
    return [
        _row_name(suite, decoding),
        str(len(last.attempts)),
        str(last.num_attempts),
        f"{rate(first.rate('success'))} at {steps[0]}",
        f"{rate(last.rate('success'))} at {steps[-1]}",
        rate(gain, "+"),
        str(last.num_unverified),
    ]


def _row_name(suite: str, decoding: str) -> str:
    return f"{'all held-out' if suite == ALL_SUITES else suite_name(suite)}, {decoding_name(decoding)}"


def _repeats_table(run: Measured) -> Table:
    """pass@1, pass@k and pass^k at every evaluation."""
    rows, k = [], run.num_repeats
    for step in run.evaluations():
        found = run.tally.at(HELD_OUT, SAMPLED, step)
        values = [found.drawn(1, all_succeed=False)]
        values += [found.drawn(k, all_succeed=every) for every in (False, True)] if k else []
        rows.append([str(step), str(len(values[-1])), *(rate(share(list(drawn.values()))) for drawn in values)])
    return Table(
        caption=f"{run.prefix}repeated attempts at temperature 1 by evaluation, over tasks with at least {k} attempts",
        columns=["step", "tasks", "pass@1", f"pass@{k}: any of {k} succeeds", f"pass^{k}: all {k} succeed"],
        rows=rows,
    )


def retain_section(runs: list[Measured]) -> Section:
    """What the policy could do before, and whether it still can."""
    blocks: list[Block] = []
    for run in runs:
        rows = []
        for decoding in run.tally.decodings(HELD_OUT):
            for suite in run.tally.suites(HELD_OUT, decoding):
                if is_retain(suite):
                    rows.append(_success_row(run, decoding, suite))
        if rows:
            columns = ["suite and decoding", "tasks", "attempts", "first", "last", "last - first", "no verdict"]
            caption = f"{run.prefix}retain suites: success before and after training"
            blocks.append(Table(caption=caption, columns=columns, rows=rows))
        else:
            remedy = "add suites named retain_... to the evaluation data (contract.evaluation.retain_suites)"
            blocks.append(Missing(f"{run.prefix}retained skills: the run evaluated no retain suite", remedy))
    return Section("retain", "Retained skills", blocks)


def learning_section(runs: list[Measured]) -> Section:
    """Training return a step, held-out success an evaluation, and what controls without learning gained."""
    charts = [
        Chart(
            title="Training return",
            x_label="optimizer step",
            y_label="mean return of the update's episodes",
            series=[curve for index, run in enumerate(runs) for curve in _training_curve(run, index)],
        ),
        *(_success_chart(runs, decoding) for decoding in _decodings(runs)),
        _gain_chart(runs),
    ]
    blocks: list[Block] = [
        Paragraph("Training return is over the groups of each update, interval by bootstrap over groups."),
        Grid([chart for chart in charts if chart.series]),
    ]
    blocks += [
        Missing(f"{run.prefix}controls: audits/controls.json is missing", "bash scripts/run_controls.sh")
        for run in runs
        if run.controls_audit is None
    ]
    return Section("learning", "Learning curves", blocks)


def _decodings(runs: list[Measured]) -> list[str]:
    return sorted({decoding for run in runs for decoding in run.tally.decodings(HELD_OUT)}, reverse=True)


def _training_curve(run: Measured, style: int) -> Iterator[Series]:
    points, band = [], []
    for update in run.updates:
        groups: dict[str, list[float]] = {}
        for row in update.rows:
            groups.setdefault(row.group_id, []).append(row.episode_return)
        found = estimate([sum(returns) / len(returns) for returns in groups.values()])
        if found is not None:
            points.append((float(update.step), found.mean))
            band.append((found.low, found.high))
    if points:
        yield Series(name=f"{run.prefix}training", points=points, band=band, style=style)


def _success_chart(runs: list[Measured], decoding: str) -> Chart:
    series = []
    for index, run in enumerate(runs):
        found = [(step, run.tally.at(HELD_OUT, decoding, step).rate("success")) for step in run.evaluations(decoding)]
        series.append(_curve(f"{run.prefix}held-out", [(step, value) for step, value in found if value], index))
    return Chart(
        title=f"Held-out success, {decoding_name(decoding)}",
        x_label="policy version (optimizer step)",
        y_label="task success",
        series=[one for one in series if one.points],
        is_share=True,
    )


def _gain_chart(runs: list[Measured]) -> Chart:
    """Gain over the first evaluation, the run's and its controls'."""
    series: list[Series] = []
    for index, run in enumerate(runs):
        decoding = run.main_decoding
        before = run.first(decoding).task_means("success")
        found = [
            (step, paired(before, run.tally.at(HELD_OUT, decoding, step).task_means("success")))
            for step in run.evaluations(decoding)[1:]
        ]
        series.append(_curve(f"{run.prefix}this run", [(step, value) for step, value in found if value], index))
        at = run.evaluations(decoding)[-1] if found else 0
        for name, gain in control_gains(run.controls_audit):
            series.append(_curve(f"{run.prefix}{name}", [(at, gain)], len(series) + len(runs)))
    return Chart(
        title="Held-out gain over the first evaluation, with controls",
        x_label="policy version (optimizer step)",
        y_label="gain in task success, paired by task",
        series=[one for one in series if one.points],
        bound=0.0,
        bound_name="no gain",
    )


def control_gains(audit: dict[str, object] | None) -> list[tuple[str, Estimate]]:
    """Every gain with an interval in audits/controls.json, named by where it stands: `shuffled 11`."""
    found: list[tuple[str, Estimate]] = []

    def search(value: object, name: str) -> None:
        if not isinstance(value, dict):
            return
        if all(isinstance(value.get(part), int | float) for part in ("mean", "low", "high")):
            num_tasks = value.get("num_tasks", 0)
            found.append((name, Estimate(value["mean"], value["low"], value["high"], num_tasks)))
            return
        for key, inner in value.items():
            search(inner, f"{name} {key}".strip().replace("_", " "))

    search(audit or {}, "")
    return found


def _curve(name: str, found: list[tuple[int, Estimate]], style: int) -> Series:
    return Series(
        name=name,
        points=[(float(step), value.mean) for step, value in found],
        band=[(value.low, value.high) for _, value in found],
        style=style,
    )


def comparison_section(runs: list[Measured]) -> Section:
    """Two runs against each other on the tasks that both were evaluated on."""
    a, b = runs
    rows = []
    for decoding in _decodings(runs):
        for suite in sorted({*a.tally.suites(HELD_OUT, decoding), *b.tally.suites(HELD_OUT, decoding)}):
            ends = [_ends(run, decoding, suite) for run in runs]
            if any(end is None for end in ends):
                continue
            (a_first, a_last), (b_first, b_last) = (end for end in ends if end is not None)
            common = a_last.keys() & b_last.keys()
            a_gain, b_gain = (
                {task: last[task] - first[task] for task in first.keys() & last.keys()}
                for first, last in ((a_first, a_last), (b_first, b_last))
            )
            rows.append(
                [
                    _row_name(suite, decoding),
                    str(len(common)),
                    rate(paired(a_first, b_first), "+"),
                    rate(paired(a_last, b_last), "+"),
                    rate(paired(a_gain, b_gain), "+"),
                ]
            )
    blocks: list[Block] = [
        Paragraph(
            "B minus A, paired by task: a task counts when both runs evaluated it under the same name with the same "
            "content. The last column is the difference of the two gains over their own first evaluation."
        )
    ]
    if rows:
        columns = ["suite and decoding", "tasks in both", "first: B - A", "last: B - A", "gain: B - A"]
        blocks.append(Table(caption="held-out success, B minus A", columns=columns, rows=rows))
    else:
        blocks.append(Missing("the difference between the runs: they share no held-out task", EVALUATE))
    return Section("comparison", "A and B on the same tasks", blocks)


def _ends(run: Measured, decoding: str, suite: str) -> tuple[Means, Means] | None:
    steps = run.tally.steps(HELD_OUT, decoding, suite)
    if not steps:
        return None
    first, last = (
        run.tally.at(HELD_OUT, decoding, step, suite).task_means("success") for step in (steps[0], steps[-1])
    )
    return first, last
