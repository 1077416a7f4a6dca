"""`agent-contracts controls`: paired gains over frozen, a verdict that claims what they show, and G19's audit."""

import json
import random

import msgspec
import pytest
from typer.testing import CliRunner

from recipe.agent_contracts.cli import app
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.evaluation.controls import Controls, false_alarms, judge_controls, verdict
from recipe.agent_contracts.evaluation.gates.base import Run, Status
from recipe.agent_contracts.evaluation.gates.control import ShuffledRewardNull
from tests.unit.evaluation.control_runs import controls, make_all, make_arm, successes


def test_gains_are_paired_with_the_frozen_arm_of_the_same_engine_seed(tmp_path):
    found = judge_controls(make_all(tmp_path))
    assert found.baseline == "frozen"
    assert found.normal.mean == pytest.approx(1 / 3)
    assert {seed: round(gain.mean, 3) for seed, gain in found.shuffled.items()} == {"1": 0.0, "2": 0.0, "3": -0.333}
    assert (found.sft_only.mean, found.frozen_vs_frozen.mean) == (0.0, 0.0)
    assert (found.greedy.normal.mean, found.greedy.sft_only.mean) == (1.0, 0.0)
    assert found.verdict[0].startswith("shown: ")


def test_the_audit_in_the_normal_arms_folder_is_what_gate_g19_reads(tmp_path):
    make_all(tmp_path)
    normal = Run(tmp_path / "normal")
    assert ShuffledRewardNull(normal).finding().status == Status.NOT_MEASURED
    found = judge_controls(tmp_path)
    written = (tmp_path / "normal" / "audits" / "controls.json").read_bytes()
    assert msgspec.json.decode(written, type=Controls) == found
    assert json.loads(written)["shuffled"]["3"]["low"] == pytest.approx(-1 / 3)
    assert ShuffledRewardNull(normal).finding().status == Status.PASSED


def test_a_control_is_never_a_go_itself(tmp_path):
    make_all(tmp_path)
    (tmp_path / "shuffled_1" / "audits").mkdir()
    judge_controls(tmp_path)
    audit = tmp_path / "normal" / "audits" / "controls.json"
    (tmp_path / "shuffled_1" / "audits" / "controls.json").write_bytes(audit.read_bytes())
    finding = ShuffledRewardNull(Run(tmp_path / "shuffled_1")).finding()
    assert finding.status == Status.NOT_MEASURED
    assert "itself a control (shuffled_rewards)" in finding.evidence


def test_g19_does_not_take_few_tasks_for_a_measurement(tmp_path):
    judge_controls(make_all(tmp_path, num_tasks=20))
    finding = ShuffledRewardNull(Run(tmp_path / "normal")).finding()
    assert finding.status == Status.NOT_MEASURED
    assert "20 tasks" in finding.evidence


def test_the_command_prints_the_arms_and_the_verdict(tmp_path):
    result = CliRunner().invoke(app, ["controls", str(make_all(tmp_path))])
    assert result.exit_code == 0, result.output
    for name in ("frozen_again", "shuffled_3", "sft_only"):
        assert name in result.output
    assert "+.333 [+.333, +.333]" in result.output
    assert "rewards shuffled, seed 3: -.333 [-.333, -.333], no gain" in result.output


def test_a_missing_baseline_and_another_initial_policy_are_refused(tmp_path):
    scores = successes(5, [1.0])
    make_arm(tmp_path / "normal", scores)
    make_arm(tmp_path / "frozen", scores, control="frozen", engine_seed=43)
    with pytest.raises(ContractViolation, match="control=frozen and engine seed 42"):
        judge_controls(tmp_path)
    make_arm(tmp_path / "warm", scores, control="frozen", base="sha256:warm")
    with pytest.raises(ContractViolation, match="the initial policy of normal"):
        judge_controls(tmp_path)


def test_arms_on_different_tasks_are_no_pairs(tmp_path):
    make_arm(tmp_path / "normal", successes(5, [1.0]))
    make_arm(tmp_path / "frozen", successes(4, [1.0]), control="frozen")
    result = CliRunner().invoke(app, ["controls", str(tmp_path)])
    assert result.exit_code == 2
    assert "unpaired tasks" in result.output


def test_two_evaluations_of_one_policy_raise_few_alarms_and_of_two_policies_the_halving_still_does_not():
    """The division pools attempts, so its rate is that of the null whatever the two evaluations were."""
    rng = random.Random(1)
    first, second = (
        {f"t{n}": [float(rng.random() < rate) for _ in range(3)] for n in range(100)} for rate in (0.2, 0.8)
    )
    for pair in ((first, first), (first, second)):
        found = false_alarms(*pair)
        assert 0.0 < found.rate_above < 0.05
        assert found.rate_above <= found.rate_either_way < 0.09


@pytest.mark.parametrize(
    ("case", "summary"),
    [
        ({}, "shown: "),
        ({"normal": (-0.01, 0.2)}, "not shown: the interval of normal RLOO's gain is not above 0"),
        ({"nulls": ((-0.03, 0.02), (-0.03, 0.02), (0.01, 0.05))}, "not shown: a control with shuffled rewards gained"),
        ({"nulls": ((-0.1, 0.03),) * 3}, "not measured: a shuffled control's interval is too wide"),
        ({"nulls": ((-0.03, 0.02),) * 2}, "not measured: 2 shuffle seeds"),
        ({"num_tasks": 99}, "not measured: 99 tasks"),
        ({"attempts": 2}, "not measured: 200 tasks with 2 verified attempts"),
    ],
)
def test_the_verdict_claims_what_the_intervals_show(case, summary):
    assert verdict(controls(**case))[0].startswith(summary)


def test_each_line_says_what_its_own_interval_shows():
    lines = verdict(controls(nulls=((-0.1, 0.03), (0.01, 0.05), (-0.09, -0.01))))
    assert lines[1].endswith("better than frozen")
    assert "not measured" in lines[2] and "half-width 0.065 is above 0.06" in lines[2]
    assert lines[3].endswith("a gain: the null is broken")
    assert lines[4].endswith("no gain")
    assert lines[-1] == "normal RLOO, greedy: -.015 [-.050, +.020], no difference from frozen is shown"
