"""What each update was: whose gradient, how large, how far from the reference, and whether the samples were its own."""

from __future__ import annotations

import itertools
from collections import Counter

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
    beside,
    number,
)
from recipe.agent_contracts.update.gradient_mass import length_band

STEP = "optimizer step"
RATIOS = ("token", "whole_turn", "whole_episode", "turn_geometric_mean", "episode_geometric_mean")
BOUNDS = {"abs_p95": "95th percentile of |difference|", "abs_max": "largest |difference|", "k3": "|k3|"}


def update_section(runs: list[Measured]) -> Section:
    """Zero-advantage groups, KL, gradient norm, entropy, gradient mass and ratios."""
    asked = [
        ("update/zero_variance_groups", "Groups without advantage", "share of groups whose returns agree"),
        ("actor/kl_loss", "KL to the reference policy", "nats a token, as the loss has it"),
        ("actor/grad_norm", "Gradient norm", "before clipping"),
        ("actor/entropy", "Entropy", "as logged by the trainer"),
        ("ratio/effective_sample_size", "Effective sample size", "share of the batch, whole-episode ratios"),
    ]
    charts = [_metric(runs, name, title, label) for name, title, label in asked]
    blocks: list[Block] = [Grid([chart for chart in charts if chart.series])] if _any(charts) else []
    blocks += [_not_logged(name) for (name, _, _), chart in zip(asked, charts, strict=True) if not chart.series]
    masses = itertools.zip_longest(*(_mass_blocks(run) for run in runs))
    blocks += [block for together in masses for block in beside([found for found in together if found is not None])]
    blocks += beside([_ratio_block(run) for run in runs])
    return Section("update", "The updates", blocks)


def _metric(runs: list[Measured], name: str, title: str, label: str) -> Chart:
    series = [
        Series(name=f"{run.prefix}{name}", points=points, style=index)
        for index, run in enumerate(runs)
        if (points := run.series(name))
    ]
    return Chart(title=title, x_label=STEP, y_label=label, series=series)


def _any(charts: list[Chart]) -> bool:
    return any(chart.series for chart in charts)


def _not_logged(name: str) -> Missing:
    return Missing(f"{name}: no step logged it", "agent-contracts train logs it at every step that makes an update")


def _mass_blocks(run: Measured) -> list[Block]:
    """Gradient mass by length beside the share of episodes of that length."""
    prefix = "gradient_mass/length/"
    bands = sorted(run.metric_names(prefix), key=lambda name: int(name.removeprefix(prefix).partition("-")[0]))
    if not bands:
        return [_not_logged(f"{run.prefix}gradient_mass/length")]
    episodes = Counter(length_band(row.num_action_tokens) for update in run.updates for row in update.rows)
    steps = max(len({entry.step for entry in run.metrics if any(name in entry.values for name in bands)}), 1)
    rows, total = [], max(sum(episodes.values()), 1)
    for name in bands:
        band = name.removeprefix(prefix)
        mass = sum(value for _, value in run.series(name)) / steps
        rows.append([band, str(episodes[band]), f"{100 * episodes[band] / total:.1f}%", f"{100 * mass:.1f}%"])
    table = Table(
        caption=f"{run.prefix}gradient mass by sampled tokens of an episode, mean over {steps} updates",
        columns=["tokens", "trained episodes", "share of episodes", "share of gradient mass"],
        rows=rows,
    )
    chart = Chart(
        title=f"{run.prefix}Gradient mass by length",
        x_label=STEP,
        y_label="share of the update's gradient mass",
        series=[
            Series(name=name.removeprefix(prefix) + " tokens", points=run.series(name), style=index)
            for index, name in enumerate(bands)
        ],
        is_share=True,
    )
    return [table, Grid([chart])]


def _ratio_block(run: Measured) -> Block:
    """Tails of the likelihood ratios: the worst step of each, and the maximum over steps."""
    rows = []
    for kind in RATIOS:
        tails = [run.series(f"ratio/{kind}/{tail}") for tail in ("p50", "p95", "p99", "max")]
        if all(tails):
            step, largest = max(tails[-1], key=lambda point: point[1])
            middle = [f"{max(value for _, value in tail):.6f}" for tail in tails[:-1]]
            rows.append([kind.replace("_", " "), *middle, f"{largest:.6f}", number(step)])
    if not rows:
        return _not_logged(f"{run.prefix}ratio/*")
    columns = ["ratio", "p50", "p95", "p99", "max", "max at step"]
    caption = f"{run.prefix}likelihood ratios of updated to sampling policy, largest over steps"
    return Table(caption=caption, columns=columns, rows=rows)


def mismatch_section(runs: list[Measured]) -> Section:
    """Generator against trainer, with the declared bounds."""
    intro = (
        "Do generator and trainer give a sampled token the same log probability? Past a declared bound a run stops "
        "before the optimizer moves. Values are in nats, on a logarithmic axis."
    )
    blocks: list[Block] = [Paragraph(intro)]
    charts = []
    for name, title in BOUNDS.items():
        bounds = {run.contract["consistency"][f"max_{name}"] for run in runs}
        bound = bounds.pop() if len(bounds) == 1 else None
        series = [
            Series(name=f"{run.prefix}{name}", points=[(x, abs(y)) for x, y in points], style=index)
            for index, run in enumerate(runs)
            if (points := run.series(f"consistency/{name}"))
        ]
        charts.append(
            Chart(
                title=f"Mismatch: {title}",
                x_label=STEP,
                y_label="nats",
                series=series,
                bound=bound,
                bound_name="" if bound is None else f"declared bound {number(bound)}",
                is_log=True,
            )
        )
    blocks += [Grid([chart for chart in charts if chart.series])] if _any(charts) else [_not_logged("consistency/*")]
    rows = [_bound_row(run, name) for run in runs for name in BOUNDS]
    columns = ["quantity", "updates measured", "largest", "at step", "declared bound"]
    blocks.append(Table(caption="mismatch against its bounds", columns=columns, rows=rows))
    return Section("mismatch", "Generator and trainer", blocks)


def _bound_row(run: Measured, name: str) -> list[str]:
    points, bound = run.series(f"consistency/{name}"), run.contract["consistency"][f"max_{name}"]
    step, worst = max(points, key=lambda point: abs(point[1]), default=(None, None))
    measured = {x for x, _ in points} & {float(update.step) for update in run.updates}
    return [
        f"{run.prefix}{name}",
        f"{len(measured)} of {len(run.updates)}",
        number(None if worst is None else abs(worst)),
        number(step),
        "none declared" if bound is None else number(bound),
    ]
