"""Every environment keeps the contract; six that break it are caught, each by the property that it breaks."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from recipe.agent_contracts.canonical import canonical_json
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.transition.actions import Action
from recipe.agent_contracts.transition.canonical_state import CanonicalStateEnv
from recipe.agent_contracts.transition.conformance import ContractCase, Finding, Property, Verdict, check_environment
from recipe.agent_contracts.transition.env import Capabilities, ToolSchema
from recipe.agent_contracts.transition.envs.terminal.env import TerminalEnv
from recipe.agent_contracts.transition.state import SnapshotKind
from recipe.agent_contracts.transition.tree import Directory
from tests.contracts import broken, desk
from tests.contracts.env_contract import EnvContract
from tests.contracts.toy import ACTIONS, OfficeEnv


class TestTerminal(EnvContract):
    environment = TerminalEnv


class TestOffice(EnvContract):
    environment = OfficeEnv


class TestDesk(EnvContract):
    environment = desk.DeskEnv


@pytest.mark.parametrize(
    ("environment", "first", "breaks_nothing_else"),
    [
        (broken.LeakyFork, Property.FORKS_ARE_ISOLATED, True),
        (broken.UnseededRandom, Property.REPLAY_IS_EXACT, False),
        (broken.WallClock, Property.RESET_IS_EXACT, False),
        (broken.SharedDefault, Property.INSTANCES_ARE_ISOLATED, False),
        (desk.ShallowFork, Property.FORKS_ARE_ISOLATED, True),
        (desk.Restless, Property.SEALED_SNAPSHOT_IS_IMMUTABLE, True),
        (broken.LossyRestore, Property.RESTORE_IS_EXACT, False),
        (broken.MutatesOnInvalid, Property.INVALID_ACTION_HAS_NO_EFFECT, True),
    ],
)
def test_a_broken_environment_fails_by_name(environment, first, breaks_nothing_else):
    failed = check_environment(environment).failed
    assert failed[0].property is first
    assert f"[transition.{first}]" in failed[0].divergence
    assert "evidence: task " in failed[0].divergence
    assert (len(failed) == 1) is breaks_nothing_else


class Weak(OfficeEnv):
    """Promises no forks and no exact replay."""

    capabilities = Capabilities(snapshot_kind=SnapshotKind.CANONICAL_STATE, restore=True)


class TestWeak(EnvContract):
    environment = Weak
    not_claimed = frozenset({Property.REPLAY_IS_EXACT, Property.RESTORE_IS_EXACT, Property.FORKS_ARE_ISOLATED})


@pytest.mark.parametrize("actions", [[], None])
def test_an_environment_without_anything_to_play_is_a_users_mistake(actions):
    class Empty(OfficeEnv):
        @classmethod
        def contract_cases(cls):
            return [] if actions is None else [ContractCase(open=cls, task_id="office", actions=actions)]

    with pytest.raises(ValueError, match="at least one is needed, each with actions"):
        check_environment(Empty)


def test_cases_that_change_nothing_show_nothing():
    with pytest.raises(ContractViolation, match="an action that changes the state"):
        check_environment(desk.Idle)


def test_what_an_environment_raises_is_a_finding_about_it():
    class Raises(OfficeEnv):
        def fork(self, snapshot, branch_id):
            raise OSError("disk full")

    (finding,) = check_environment(Raises, pause_seconds=0.0).failed
    assert finding == Finding(Property.FORKS_ARE_ISOLATED, Verdict.FAILS, "OSError: disk full")


def test_a_different_reward_for_the_same_actions_is_found():
    scores = iter(range(100))

    class Moody(OfficeEnv):
        @classmethod
        def contract_cases(cls):
            return [ContractCase(open=cls, task_id="office", actions=ACTIONS, score=lambda state: next(scores))]

    failed = check_environment(Moody, pause_seconds=0.0).failed
    assert failed[0].property is Property.REPLAY_IS_EXACT
    assert Property.RESTORE_IS_EXACT in {finding.property for finding in failed}
    assert all("reward after 7 of 7 actions" in finding.divergence for finding in failed)


def test_the_environment_in_the_docs_keeps_the_contract():
    page = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names = {
        "Action": Action,
        "CanonicalStateEnv": CanonicalStateEnv,
        "ContractCase": ContractCase,
        "Directory": Directory,
        "MyWorld": msgspec.defstruct("MyWorld", [("count", int)], frozen=True),
        "ToolSchema": ToolSchema,
        "canonical_json": canonical_json,
    }
    exec(code, names)
    report = check_environment(names["MyEnv"], pause_seconds=0.0)
    assert [finding.verdict for finding in report.findings] == [Verdict.HOLDS] * len(Property)
