"""Scripted demonstrations: they do what their quality says, in the environment and by the verifier."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.agent_contracts.transition.actions import Action
from recipe.agent_contracts.transition.envs.terminal.demonstrations import (
    DEFAULT_MIX,
    Demonstration,
    Quality,
    demonstrate,
)
from recipe.agent_contracts.transition.envs.terminal.env import TerminalEnv
from recipe.agent_contracts.transition.envs.terminal.families import families_of
from recipe.agent_contracts.transition.envs.terminal.generator import Scenario, make_scenario
from recipe.agent_contracts.transition.envs.terminal.task import SPLITS, Split
from recipe.agent_contracts.transition.envs.terminal.tools import TOOL_NAMES, parameters_by_name
from recipe.agent_contracts.transition.parsers.hermes import HermesParser
from recipe.agent_contracts.verification.terminal import TerminalVerifier
from recipe.agent_contracts.verification.verifier import Score

seeds = st.integers(0, 10**9)


def play(scenario: Scenario, demonstration: Demonstration) -> tuple[Score, list[Action]]:
    task = scenario.task
    env, parser, actions = TerminalEnv({task.task_id: task}), HermesParser(), []
    env.reset(task.task_id, seed=0)
    for number, turn in enumerate(demonstration.turns, start=1):
        actions.append(parser.parse(turn, parameters_by_name(env.tools())))
        transition = env.step(actions[-1])
        assert transition.done == (number == len(demonstration.turns))
    return TerminalVerifier().score(msgspec.to_builtins(scenario.grader), env.export_state()), actions


@pytest.mark.parametrize("quality", list(Quality))
@given(split=st.sampled_from(SPLITS), seed=seeds)
def test_the_verifier_accepts_exactly_the_right_demonstrations(quality: Quality, split: Split, seed: int) -> None:
    scenario = make_scenario(split, seed)
    score, _ = play(scenario, demonstrate(scenario, Random(seed), {quality: 1.0}))
    assert score.task_success == float(quality.succeeds)
    assert score.collateral_damage == score.policy_violation
    if quality is not Quality.WRONG_FILE:
        assert score.collateral_damage == 0.0


@given(seed=seeds)
def test_demonstrations_fit_the_step_budget(seed: int) -> None:
    scenario = make_scenario("train", seed)
    assert len(demonstrate(scenario, Random(seed)).turns) <= scenario.task.step_budget


def test_every_family_and_every_tool_is_demonstrated() -> None:
    families, tools = set(), set()
    for seed in range(1500):
        scenario = make_scenario("train", seed)
        families.add(scenario.task.family)
        _, actions = play(scenario, demonstrate(scenario, Random(seed)))
        tools |= {action.name for action in actions if action.kind != "invalid"}
    assert families == {str(family) for family in families_of("train")}
    assert tools == set(TOOL_NAMES)


def test_the_shares_of_the_mix_add_up() -> None:
    assert sum(DEFAULT_MIX.values()) == pytest.approx(1.0)
    assert set(DEFAULT_MIX) == set(Quality)
