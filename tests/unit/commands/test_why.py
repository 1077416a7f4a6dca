"""`agent-contracts why`: backward to group, verdict and state diff, forward to version and held-out result."""

import itertools
import json

import msgspec
import pytest
from typer.testing import CliRunner

from recipe.agent_contracts.cli import app
from recipe.agent_contracts.policy.registry import Part, Registry
from recipe.agent_contracts.update.ledger import Ledger, Measured
from recipe.agent_contracts.update.record import UpdateRow
from tests.unit.commands.conftest import write
from tests.unit.update.leasing import lease
from tests.unit.update.test_record import record


def call(*words):
    return CliRunner().invoke(app, ["why", *map(str, words)])


def row_of(turns, advantage):
    """A row of `g` as RLOO with two siblings gives it, at weight 1/2."""
    last = turns[-1]
    return UpdateRow(
        trajectory_id=last.episode.trajectory_id,
        group_id="g",
        episode_return=last.reward_components["task_success"],
        advantages=[advantage],
        num_action_tokens=sum(len(turn.action_token_ids) for turn in turns),
        weight=0.5,
    )


@pytest.fixture
def updated(recorded):
    """Step 1 used both episodes: the right one with advantage 1, the wrong one with -1."""
    run, (right, wrong) = recorded
    write(run, right, wrong)
    record(1, [row_of(right, 1.0), row_of(wrong, -1.0)]).write(run)
    return run, right, wrong


def publish(run, version):
    registry = Registry(run, clock=itertools.count(1_700_000_000).__next__)
    publication = registry.build(version, 0, num_ranks=1)
    registry.acknowledge(version, 0, Part.FULL, 0, "sha256:w", 3, None)
    registry.stage(publication, checksum="sha256:w1", manifest_hash="sha256:m")
    registry.activate(publication)


def test_a_step_lists_its_rows_by_group(updated):
    result = call(updated[0], "--step", 1)
    assert result.exit_code == 0, result.output
    assert "step 1: version 0 -> 1; reinforce_with_kl, rloo, reduction episode_sum" in result.output
    assert "2 episodes, of which 2 have a coefficient other than 0" in result.output
    assert result.output.count("group g") == 1
    assert "g_1: return 0, advantage -1.0000 x weight 0.5" in result.output


def test_an_episode_shows_group_verdict_and_what_each_turn_changed(updated):
    run, right, _ = updated
    result = call(run, "--step", 1, "--trajectory", "g_0")
    assert result.exit_code == 0, result.output
    assert "> g_0: return 1, advantage +1.0000" in result.output
    assert "  g_1: return 0, advantage -1.0000" in result.output
    assert "verifier: task_success 1" in result.output
    for turn in right:
        assert turn.action_text in result.output
    assert '~ /declared: null -> "finish"' in result.output


@pytest.mark.parametrize(("name", "sign", "way"), [("g_0", "+0.5", "up"), ("g_1", "-0.5", "down")])
def test_every_token_finds_its_turn_its_probability_and_its_coefficient(updated, name, sign, way):
    run, *both = updated
    turns = next(turns for turns in both if turns[0].episode.trajectory_id == name)
    starts = itertools.accumulate((len(turn.action_token_ids) for turn in turns), initial=0)
    for turn, start in zip(turns, starts, strict=False):
        position = len(turn.action_token_ids) - 1
        result = call(run, "--step", 1, "--trajectory", name, "--token", start + position)
        assert f"token {turn.action_token_ids[position]} at position {position} of turn {turn.turn}," in result.output
        assert "log probability -0.5000" in result.output
        assert f"coefficient {sign}: its own term of the loss pushes its log probability {way}" in result.output
        assert turn.action_text in result.output


def test_a_sibling_that_was_not_trained_on_is_shown_with_its_end(updated):
    run, right, _ = updated
    record(2, [row_of(right, 0.0)]).write(run)
    result = call(run, "--step", 2, "--trajectory", "g_0", "--token", 0)
    assert "coefficient 0: its own term of the loss does not move it" in result.output
    assert "g_1: not in this update, " in result.output


def test_a_shuffled_update_says_so_and_names_whose_return_each_row_was_credited_with(updated):
    run, right, wrong = updated
    rows = [
        msgspec.structs.replace(row_of(right, -1.0), episode_return=0.0, return_of="g_1"),
        msgspec.structs.replace(row_of(wrong, 1.0), episode_return=1.0, return_of="g_0"),
    ]
    null = msgspec.structs.replace(record(2, rows), control="shuffled_rewards", shuffle_seed=5)
    null.write(run)
    for words in ([], ["--trajectory", "g_0"], ["--trajectory", "g_0", "--token", 0]):
        output = call(run, "--step", 2, *words).output
        assert "control shuffled_rewards, seed 5: returns were permuted within each group" in output
        assert "g_0: return 0 (verified for g_1), advantage -1.0000" in output
    assert "control" not in call(run, "--step", 1).output


def test_the_groups_lease_and_its_fate_are_shown(updated):
    run = updated[0]
    ledger = Ledger(run)
    ledger.lease([lease("g", policy_version=0, size=2, base_snapshot_id="sha256:start")], 1)
    ledger.complete("g", 1, Measured(10, 0.5))
    ledger.admit(["g"], 1)
    ledger.apply(["g"], 1, 1)
    output = call(run, "--step", 1, "--trajectory", "g_0").output
    assert "leased at step 1 for version 0, 2 siblings, from state sha256:start; now applied" in output


def test_what_came_of_it_is_the_version_and_its_held_out_result(updated):
    run = updated[0]
    assert "which was never served" in call(run, "--step", 1).output
    publish(run, 1)
    entries = [(0, 0.25), (3, 0.5)]
    lines = [json.dumps({"step": step, "data": {"val-core/x/reward/mean@3": value}}) for step, value in entries]
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    output = call(run, "--step", 1).output
    assert "it made policy version 1" in output
    assert "replica 0: active, served 2023-11-14T22:13:23+00:00 still, weights sha256:w1" in output
    assert "held-out evaluation at version 3, before at 0" in output
    assert "3 updates lie between: the difference is owed to all of them" in output
    assert "x/reward/mean@3: 0.250 -> 0.500" in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--step", 7], "a record of step 7, found records of steps: 1"),
        (["--step", 1, "--trajectory", "x_0"], "expected x_0 in step 1"),
        (["--step", 1, "--trajectory", "g_0", "--token", 99999], "found 99999"),
        (["--step", 1, "--token", 0], "--token needs --trajectory"),
    ],
)
def test_what_is_not_there_is_named(updated, words, message):
    result = call(updated[0], *words)
    assert result.exit_code == 2
    assert message in result.output


def test_an_update_whose_episode_was_recorded_otherwise_is_refused(updated):
    run, right, _ = updated
    short = msgspec.structs.replace(row_of(right, 1.0), num_action_tokens=3)
    record(1, [short]).write(run)
    result = call(run, "--step", 1, "--trajectory", "g_0")
    assert result.exit_code == 2
    assert "records with the 3 action tokens that step 1 used" in result.output
