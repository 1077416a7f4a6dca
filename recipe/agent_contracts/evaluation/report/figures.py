"""The report's main figures as flat numbers, for a metrics store: names below `report/`, only what was measured."""

from __future__ import annotations

import math
from collections import Counter

from recipe.agent_contracts.evaluation.gates.base import Status
from recipe.agent_contracts.evaluation.report.measured import Measured
from recipe.agent_contracts.evaluation.report.page import quantile
from recipe.agent_contracts.evaluation.report.tally import paired, share
from recipe.agent_contracts.evaluation.statistics import Estimate


def figures(run: Measured) -> dict[str, float]:
    """Verdict figures of one run. An estimate `x` comes with `x/low` and `x/high`, its 95% interval."""
    decoding, k = run.main_decoding, run.num_repeats
    first, last = run.first(decoding), run.last(decoding)
    estimates: dict[str, Estimate | None] = {
        "success": last.rate("success"),
        "violations": last.rate("violated"),
        "side_effects": last.rate("damaged"),
        "tokens": last.mean("tokens"),
        "tool_calls": last.mean("tool_calls"),
    }
    if len(run.evaluations(decoding)) > 1:
        estimates["gain"] = paired(first.task_means("success"), last.task_means("success"))
    if k > 1:
        estimates[f"pass_at_{k}"] = share(list(run.last().drawn(k, all_succeed=False).values()))
        estimates[f"pass_hat_{k}"] = share(list(run.last().drawn(k, all_succeed=True).values()))
    found: dict[str, float] = {}
    for name, value in estimates.items():
        if value is not None:
            found |= {
                f"report/heldout/{name}": value.mean,
                f"report/heldout/{name}/low": value.low,
                f"report/heldout/{name}/high": value.high,
            }
    for name, seconds in (("episode", last.episode_seconds), ("turn", last.turn_seconds)):
        if len(seconds):
            found |= {f"report/heldout/{name}_seconds/p{q}": quantile(seconds, q / 100) for q in (50, 95)}
    counts = Counter(gate.status for gate in run.gates.findings)
    found |= {f"report/gates/{status}": float(counts[status]) for status in Status if run.gates.findings}
    if run.groups is not None:
        found["report/ledger/problems"] = float(len(run.groups.problems))
    assert all(math.isfinite(value) for value in found.values()), found
    return found
