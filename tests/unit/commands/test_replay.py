"""`agent-contracts replay`: what it says and which exit code it gives."""

import msgspec
from typer.testing import CliRunner

from recipe.agent_contracts.cli import app
from tests.unit.commands.conftest import write


def call(*words):
    return CliRunner().invoke(app, ["replay", *map(str, words)])


def test_a_run_that_replays_exits_with_0(run):
    result = call(run)
    assert (result.exit_code, result.output) == (0, "2 episodes replayed, 0 diverged\n")


def test_one_trajectory_can_be_replayed_alone(run):
    assert "1 episodes replayed" in call(run, "--trajectory", "g_1").output
    missing = call(run, "--trajectory", "none")
    assert missing.exit_code == 2
    assert "no such episode" in missing.output


def test_the_first_divergence_is_shown_and_exits_with_1(recorded):
    run, (right, wrong) = recorded
    wrong[1] = msgspec.structs.replace(wrong[1], observation="[red]something else[/red]")
    write(run, right, wrong)
    result = call(run)
    assert result.exit_code == 1
    assert "first divergence: g_1, turn 1, observation" in result.output
    assert "recorded: '[red]something else[/red]'" in result.output
    assert "2 episodes replayed, 1 diverged" in result.output


def test_a_missing_blob_exits_with_2_and_names_it(run):
    for path in (run / "blobs").glob("??/*"):
        path.unlink()
    result = call(run)
    assert result.exit_code == 2
    assert "no such blob" in result.output
