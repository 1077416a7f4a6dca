"""The verdict on five axes: capability, repeated-run reliability, safety, cost, integrity. Never one score.

A word (gain, no gain shown, loss ...) follows from the interval alone: it says what 95% intervals exclude, and a figure
that was not measured says what to run.
"""

from __future__ import annotations

import statistics

from recipe.agent_contracts.evaluation.gates import go
from recipe.agent_contracts.evaluation.gates.base import Status
from recipe.agent_contracts.evaluation.report.measured import Measured
from recipe.agent_contracts.evaluation.report.page import (
    Axis,
    Figure,
    State,
    amount,
    decoding_name,
    number,
    of,
    quantiles,
    rate,
)
from recipe.agent_contracts.evaluation.report.sections.gates import counted
from recipe.agent_contracts.evaluation.report.sections.heldout import EVALUATE
from recipe.agent_contracts.evaluation.report.tally import Slice, paired, share
from recipe.agent_contracts.evaluation.statistics import Estimate, wilson

UNKNOWN = "not measured"


def axes(runs: list[Measured]) -> list[Axis]:
    """The five axes in their order."""
    asked = (
        ("Capability", "Does it solve tasks that it was not trained on, more than before?", _capability),
        ("Repeated-run reliability", "Does it solve a task every time it is asked?", _reliability),
        ("Safety and side effects", "What else did it do to solve it?", _safety),
        ("Cost and latency", "What does a success take?", _cost),
        ("Integrity", "Can the figures above be trusted?", _integrity),
    )
    return [Axis(name, question, [judge(run) for run in runs]) for name, question, judge in asked]


def _capability(run: Measured) -> Figure:
    decoding, steps = run.main_decoding, run.evaluations(run.main_decoding)
    last = run.last(decoding)
    success = last.rate("success")
    if success is None:
        return _unknown(run, "no held-out attempt has a verdict", EVALUATE)
    where = f"{last.num_attempts} attempts at {len(last.attempts)} held-out tasks, {decoding_name(decoding)}"
    now = f"Success {rate(success)} at version {steps[-1]} ({where})."
    if len(steps) < 2:
        text = f"{now} One evaluation shows no gain: {EVALUATE}."
        return Figure(run.label, "open", "gain not measured", f"success {rate(success)}", text)
    gain = paired(run.first(decoding).task_means("success"), last.task_means("success"))
    state, word = _moved(gain, wished=1)
    text = f"{now} The gain is over version {steps[0]}, paired by task.{_greedy(run)}"
    return Figure(run.label, state, word, f"gain {rate(gain, '+')}", text)


def _greedy(run: Measured) -> str:
    if len(run.evaluations("greedy")) < 2 or run.main_decoding == "greedy":
        return ""
    first, last = run.first("greedy"), run.last("greedy")
    gain = paired(first.task_means("success"), last.task_means("success"))
    return f" Greedy: {rate(last.rate('success'))}, gain {rate(gain, '+')}."


def _reliability(run: Measured) -> Figure:
    k, steps = run.num_repeats, run.evaluations()
    if k < 2:
        remedy = (
            f"evaluate each task at least twice at temperature 1 (contract.evaluation.attempts_per_task); {EVALUATE}"
        )
        return _unknown(run, "no held-out task has two attempts", remedy)
    before, after = (found.drawn(k, all_succeed=True) for found in (run.first(), run.last()))
    any_of = share(list(run.last().drawn(k, all_succeed=False).values()))
    headline = f"pass^{k} {rate(share(list(after.values())))}"
    text = f"All {k} of {k} attempts, over {len(after)} tasks; any of them (pass@{k}): {rate(any_of)}."
    if len(steps) < 2:
        text += f" One evaluation shows no change: {EVALUATE}."
        return Figure(run.label, "open", "change not measured", headline, text)
    gain = paired(before, after)
    state, word = _moved(gain, wished=1)
    text += f" Change of pass^{k} since version {steps[0]}: {rate(gain, '+')}."
    return Figure(run.label, state, word, headline, text)


def _safety(run: Measured) -> Figure:
    decoding, steps = run.main_decoding, run.evaluations(run.main_decoding)
    last = run.last(decoding)
    if not last.num_attempts:
        return _unknown(run, "no held-out attempt has a verdict", EVALUATE)
    told, changes = [], []
    for name, field in (("Violations", "violated"), ("Side effects", "damaged")):
        told.append(f"{name}: {of(last.count(field), last.num_attempts)} attempts")
        if len(steps) > 1:
            change = paired(run.first(decoding).task_means(field), last.task_means(field))
            changes.append(change)
            told[-1] += f", change {rate(change, '+')}"
    headline = f"violations {rate(last.rate('violated'))}, side effects {rate(last.rate('damaged'))}"
    text = f"{'; '.join(told)}. Tampering: {of(last.count('tampered'), last.num_attempts)} attempts."
    state, word = _worst([_moved(change, wished=-1) for change in changes])
    if last.count("tampered"):
        state, word = "bad", "tampering"
    return Figure(run.label, state, word, headline, text)


def _worst(moved: list[tuple[State, str]]) -> tuple[State, str]:
    """Of several changes the worst is the word: they are never averaged."""
    if not moved:
        return "open", "change not measured"
    order: list[State] = ["bad", "open", "good"]
    return min(moved, key=lambda found: order.index(found[0]))


def _cost(run: Measured) -> Figure:
    last = run.last(run.main_decoding)
    if not last.num_attempts:
        return _unknown(run, "no held-out attempt has a verdict", EVALUATE)
    seconds = [value for _, value in run.series("timing_s/step")]
    training = (
        f" Training: {number(statistics.median(seconds))} s a step (median of {len(seconds)})." if seconds else ""
    )
    text = (
        f"{amount(last.mean('tool_calls'))} tool calls an attempt, {_per_success(last)}, {last.num_attempts} attempts. "
        f"Seconds p50 / p95: {quantiles(last.episode_seconds)} an episode, {quantiles(last.turn_seconds)} a "
        f"turn.{training}"
    )
    return Figure(run.label, "plain", "measured", f"{amount(last.mean('tokens'))} sampled tokens an attempt", text)


def _per_success(found: Slice) -> str:
    successes = found.total("success")
    return f"{number(found.total('tokens') / successes)} tokens a success" if successes else "no attempt succeeded"


def _integrity(run: Measured) -> Figure:
    remedy = f"agent-contracts gates {run.folder.name}"
    if run.gates.problem is not None:
        return _unknown(run, f"the gates could not be judged ({run.gates.problem})", remedy)
    failed = [found.gate for found in run.gates.findings if found.status is Status.FAILED]
    open_gates = [found.gate for found in run.gates.findings if found.status is Status.NOT_MEASURED]
    text = f"Failed: {', '.join(failed)}." if failed else "None failed."
    text += f" Not measured: {', '.join(open_gates)}; the gates below say what measures them." if open_gates else ""
    text += _verifier(run)
    if run.groups is not None:
        text += f" Ledger: {len(run.groups.problems)} duplicate, lost or incomplete groups."
    if go(run.gates.findings):
        return Figure(run.label, "good", "go", counted(run), text)
    return Figure(run.label, "bad" if failed else "open", "no go" if failed else "not yet go", counted(run), text)


def _verifier(run: Measured) -> str:
    audit = run.verifier_audit
    if audit is None:
        return " The verifier's error rates are not measured: agent-contracts audit verifier."
    told = []
    for name, bad, whole in (("FP", "false_positives", "num_negatives"), ("FN", "false_negatives", "num_positives")):
        interval = rate(wilson(audit[bad], audit[whole])) if audit[whole] else UNKNOWN
        told.append(f"{name} {of(audit[bad], audit[whole])}, {interval}")
    return f" Verifier: {'; '.join(told)}."


def _moved(change: Estimate | None, wished: int) -> tuple[State, str]:
    """What an interval of a change says; `wished` is the sign that is hoped for."""
    if change is None:
        return "open", UNKNOWN
    if change.low > 0:
        return ("good", "gain") if wished > 0 else ("bad", "more than before")
    if change.high < 0:
        return ("bad", "loss") if wished > 0 else ("good", "fewer than before")
    return "open", "no gain shown" if wished > 0 else "no change shown"


def _unknown(run: Measured, why: str, remedy: str) -> Figure:
    return Figure(run.label, "open", UNKNOWN, "", f"{why[0].upper()}{why[1:]}. To measure: {remedy}.")
