"""What the arms show: each arm's held-out gain over the frozen policy, paired by task, and a verdict in words.

The frozen arm with the normal arm's engine seed is the baseline; another frozen arm against it shows what the method
calls a gain where there is none. The verdict claims what the intervals show and nothing else: an interval wider than
gate G19 allows, or fewer tasks or attempts than the contract asks for, is "not measured".
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.evaluation.arms import Arm, read_arms
from recipe.agent_contracts.evaluation.gates.control import ShuffledRewardNull
from recipe.agent_contracts.evaluation.sft_only import SftReport
from recipe.agent_contracts.evaluation.statistics import Estimate, bootstrap_mean, paired_difference
from recipe.agent_contracts.transition.snapshots import write_atomically

SAMPLED, GREEDY = "temperature_1", "greedy"
MAX_HALF_WIDTH = ShuffledRewardNull.max_half_width
MIN_TASKS, MIN_ATTEMPTS = ShuffledRewardNull.min_tasks, ShuffledRewardNull.min_attempts
MIN_SHUFFLE_SEEDS = ShuffledRewardNull.min_seeds
_SPLITS, _SPLIT_RESAMPLES, _SPLIT_SEED = 1000, 1000, 20261207


class Gains(msgspec.Struct, frozen=True, kw_only=True):
    """Paired gains over the frozen baseline under one decoding."""

    normal: Estimate
    shuffled: dict[str, Estimate]
    """By shuffle seed."""
    frozen_vs_frozen: Estimate | None
    """Null: there is one frozen arm only."""
    sft_only: Estimate | None
    """Null: there is no such arm."""


class ArmSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table."""

    name: str
    control: str
    shuffle_seed: int | None
    engine_seed: int
    num_steps: int
    num_attempts: int
    """At temperature 1, with a verdict."""
    unverified: int
    success: dict[str, Estimate]
    """By decoding."""
    gain: dict[str, Estimate]
    """By decoding. Empty for the baseline."""
    sft: SftReport | None


class FalseAlarms(msgspec.Struct, frozen=True, kw_only=True):
    """How often two evaluations of one policy differ by an interval that leaves 0 out."""

    rate_above: float
    """Interval above 0: what would pass for a gain. 0.025 is nominal."""
    rate_either_way: float
    """0.05 is nominal."""
    num_splits: int


class Controls(msgspec.Struct, frozen=True, kw_only=True):
    """`audits/controls.json`: the gains at temperature 1 at the top, where gate G19 reads them."""

    baseline: str
    num_tasks: int
    attempts_per_task: int
    """The fewest that a task has in any arm at temperature 1."""
    normal: Estimate
    shuffled: dict[str, Estimate]
    frozen_vs_frozen: Estimate | None
    sft_only: Estimate | None
    false_alarms: FalseAlarms | None
    greedy: Gains
    arms: list[ArmSummary]
    unfinished: list[str]
    verdict: list[str]


def judge_controls(folder: Path) -> Controls:
    """Compare the arms below a folder and write `audits/controls.json` into the normal arm's.

    Raises:
        ContractViolation: ``evaluation.controls``: see `read_arms`; also for arms of different initial policies, for a
            second normal arm, and without a frozen arm of the normal arm's engine seed.
        ValueError: when arms were evaluated on different tasks.
    """
    arms, unfinished = read_arms(folder)
    normal, baseline = _reference_arms(arms, folder)
    sampled = gains(arms, normal, baseline, SAMPLED)
    greedy = gains(arms, normal, baseline, GREEDY)
    again = _second_frozen(arms, baseline)
    found = Controls(
        baseline=baseline.name,
        num_tasks=len(baseline.scores[SAMPLED]),
        attempts_per_task=min(len(values) for arm in arms.values() for values in arm.scores[SAMPLED].values()),
        normal=sampled.normal,
        shuffled=sampled.shuffled,
        frozen_vs_frozen=sampled.frozen_vs_frozen,
        sft_only=sampled.sft_only,
        false_alarms=None if again is None else false_alarms(baseline.scores[SAMPLED], again.scores[SAMPLED]),
        greedy=greedy,
        arms=[_summary(arm, baseline) for arm in arms.values()],
        unfinished=unfinished,
        verdict=[],
    )
    found = msgspec.structs.replace(found, verdict=verdict(found))
    write_atomically(folder / normal.name / "audits" / "controls.json", msgspec.json.format(msgspec.json.encode(found)))
    return found


def _reference_arms(arms: dict[str, Arm], folder: Path) -> tuple[Arm, Arm]:
    """The normal arm and the baseline."""
    normal = [arm for arm in arms.values() if arm.control == "none"]
    if len(normal) != 1:
        raise ContractViolation(
            "evaluation.controls", "one run with control=none", [a.name for a in normal], str(folder)
        )
    for arm in arms.values():
        if arm.base_revision != normal[0].base_revision:
            expected = f"the initial policy of {normal[0].name}, {normal[0].base_revision}"
            raise ContractViolation("evaluation.controls", expected, arm.base_revision, arm.name)
    seed = normal[0].engine_seed
    frozen = [arm for arm in arms.values() if arm.control == "frozen" and arm.engine_seed == seed]
    if len(frozen) != 1:
        expected = f"one run with control=frozen and engine seed {seed}"
        raise ContractViolation("evaluation.controls", expected, [arm.name for arm in frozen], str(folder))
    return normal[0], frozen[0]


def _second_frozen(arms: dict[str, Arm], baseline: Arm) -> Arm | None:
    return next((arm for arm in arms.values() if arm.control == "frozen" and arm.name != baseline.name), None)


def gains(arms: dict[str, Arm], normal: Arm, baseline: Arm, decoding: str) -> Gains:
    """Every arm over the baseline, 95% bootstrap intervals over tasks.

    Raises:
        ValueError: when the tasks are not the same.
    """
    again, sft = _second_frozen(arms, baseline), next((a for a in arms.values() if a.control == "sft_only"), None)
    return Gains(
        normal=_gain(normal, baseline, decoding),
        shuffled={
            str(arm.shuffle_seed): _gain(arm, baseline, decoding)
            for arm in arms.values()
            if arm.control == "shuffled_rewards"
        },
        frozen_vs_frozen=None if again is None else _gain(again, baseline, decoding),
        sft_only=None if sft is None else _gain(sft, baseline, decoding),
    )


def _gain(arm: Arm, baseline: Arm, decoding: str) -> Estimate:
    return paired_difference(baseline.task_means(decoding), arm.task_means(decoding))


def _summary(arm: Arm, baseline: Arm) -> ArmSummary:
    decodings = (SAMPLED, GREEDY)
    return ArmSummary(
        name=arm.name,
        control=arm.control,
        shuffle_seed=arm.shuffle_seed,
        engine_seed=arm.engine_seed,
        num_steps=arm.num_steps,
        num_attempts=sum(len(values) for values in arm.scores[SAMPLED].values()),
        unverified=arm.unverified,
        success={decoding: bootstrap_mean(list(arm.task_means(decoding).values())) for decoding in decodings},
        gain={} if arm.name == baseline.name else {name: _gain(arm, baseline, name) for name in decodings},
        sft=arm.sft,
    )


def false_alarms(first: dict[str, list[float]], second: dict[str, list[float]]) -> FalseAlarms:
    """Divide each task's attempts of one policy at random into two evaluations, many times, and compare the two.

    Under the null that both evaluations are of one policy, every division was equally likely. The rate is over
    attempts: the tasks are those that were drawn.

    Args:
        first: Task -> success of its attempts in one evaluation.
        second: The same of another; the same tasks.
    """
    rng = np.random.default_rng(_SPLIT_SEED)
    above = either = 0
    for _ in range(_SPLITS):
        differences = []
        for task, attempts in first.items():
            pooled = rng.permutation([*attempts, *second[task]])
            differences.append(float(pooled[len(attempts) :].mean() - pooled[: len(attempts)].mean()))
        interval = bootstrap_mean(differences, num_resamples=_SPLIT_RESAMPLES)
        above += interval.low > 0
        either += interval.low > 0 or interval.high < 0
    return FalseAlarms(rate_above=above / _SPLITS, rate_either_way=either / _SPLITS, num_splits=_SPLITS)


def verdict(found: Controls) -> list[str]:
    """What the intervals show, a sentence each; the first sums up."""
    few = _too_few(found)
    lines = [f"normal RLOO: {_moved(found.normal, few)}"]
    lines += [f"rewards shuffled, seed {seed}: {_null(gain, few)}" for seed, gain in sorted(found.shuffled.items())]
    if found.frozen_vs_frozen is not None and found.false_alarms is not None:
        alarms = found.false_alarms
        lines.append(
            f"frozen against frozen: {found.frozen_vs_frozen.text('+')}; of {alarms.num_splits} random divisions of "
            f"their attempts {alarms.rate_above:.1%} look like a gain and {alarms.rate_either_way:.1%} like a change "
            "(nominal 2.5% and 5%)"
        )
    if found.sft_only is not None:
        lines.append(f"SFT only, matched in trained tokens: {_moved(found.sft_only, few)}")
    lines.append(f"normal RLOO, greedy: {_moved(found.greedy.normal, few)}")
    return [_summed_up(found, few), *lines]


def _summed_up(found: Controls, few: str) -> str:
    nulls = [_null(gain, few) for gain in found.shuffled.values()]
    if few:
        return f"not measured: {few}"
    if len(nulls) < MIN_SHUFFLE_SEEDS:
        return f"not measured: {len(nulls)} shuffle seeds, the contract asks for {MIN_SHUFFLE_SEEDS}"
    if any(null.startswith("not measured") for null in nulls):
        return "not measured: a shuffled control's interval is too wide to say that it did not gain"
    if any(gain.low > 0 for gain in found.shuffled.values()):
        return "not shown: a control with shuffled rewards gained too"
    if found.normal.low > 0:
        return "shown: on these held-out tasks at temperature 1 the rewards made the policy better than the frozen one"
    return "not shown: the interval of normal RLOO's gain is not above 0"


def _too_few(found: Controls) -> str:
    if found.num_tasks >= MIN_TASKS and found.attempts_per_task >= MIN_ATTEMPTS:
        return ""
    return (
        f"{found.num_tasks} tasks with {found.attempts_per_task} verified attempts or more; the contract asks for "
        f"{MIN_TASKS} and {MIN_ATTEMPTS}"
    )


def _moved(gain: Estimate, few: str) -> str:
    if few:
        return f"{gain.text('+')}, not measured"
    if gain.low > 0:
        return f"{gain.text('+')}, better than frozen"
    return f"{gain.text('+')}, " + ("worse than frozen" if gain.high < 0 else "no difference from frozen is shown")


def _null(gain: Estimate, few: str) -> str:
    half_width = (gain.high - gain.low) / 2
    if few or half_width > MAX_HALF_WIDTH:
        why = few or f"half-width {half_width:.3f} is above {MAX_HALF_WIDTH}"
        return f"not measured: {gain.text('+')}, {why}"
    return f"{gain.text('+')}, " + ("a gain: the null is broken" if gain.low > 0 else "no gain")
