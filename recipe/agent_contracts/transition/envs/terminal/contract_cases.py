"""What the conformance suite plays in the terminal environment: generated tasks, one scripted episode of each quality.

Environment and verifier meet here only, as they do in a run: in the exported state.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from recipe.agent_contracts.transition.conformance import ContractCase
from recipe.agent_contracts.transition.env import AgentEnv
from recipe.agent_contracts.transition.envs.terminal.demonstrations import Quality, demonstrate
from recipe.agent_contracts.transition.envs.terminal.generator import Scenario, scenarios
from recipe.agent_contracts.transition.envs.terminal.tools import TOOLS, parameters_by_name
from recipe.agent_contracts.transition.parsers.hermes import HermesParser
from recipe.agent_contracts.verification.terminal import TerminalVerifier

SEED = 5


def contract_cases(open_env: Callable[[dict[str, Any]], AgentEnv]) -> list[ContractCase]:
    """One case for each quality of demonstration.

    Args:
        open_env: From tasks by id to a fresh environment.
    """
    return [
        _case(open_env, scenario, quality) for scenario, quality in zip(scenarios("train", SEED), Quality, strict=False)
    ]


def _case(open_env: Callable[[dict[str, Any]], AgentEnv], scenario: Scenario, quality: Quality) -> ContractCase:
    parser, parameters = HermesParser(), parameters_by_name(list(TOOLS))
    turns = demonstrate(scenario, Random(SEED), {quality: 1.0}).turns
    grader = msgspec.to_builtins(scenario.grader)
    return ContractCase(
        open=lambda: open_env({scenario.task.task_id: scenario.task}),
        task_id=scenario.task.task_id,
        seed=scenario.task.seed,
        actions=[parser.parse(turn, parameters) for turn in turns],
        score=lambda state: TerminalVerifier().score(grader, state),
    )
