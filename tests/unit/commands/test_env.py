"""`agent-contracts env check`: one line a property, and an exit code for scripts."""

import pytest
from typer.testing import CliRunner

from recipe.agent_contracts.cli import app


def check(environment: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["env", "check", environment])
    return result.exit_code, result.output


def test_a_right_environment_passes():
    code, shown = check("tests.contracts.toy:OfficeEnv")
    assert code == 0
    assert "claims canonical_state snapshots, restore=True, fork=True, exact_replay=True" in shown
    assert shown.count("holds") == 7


def test_a_broken_environment_fails_by_name():
    code, shown = check("tests.contracts.broken:MutatesOnInvalid")
    assert code == 1
    (line,) = [line for line in shown.splitlines() if "fails" in line]
    assert line.strip().startswith("invalid_action_has_no_effect")
    assert "state hash after" in shown


@pytest.mark.parametrize("environment", ["no_such_module:Env", "json", "json:loads", "tests.contracts.desk:Idle"])
def test_what_cannot_be_tested_is_a_users_mistake(environment):
    code, shown = check(environment)
    assert code == 2
    assert "error:" in shown
