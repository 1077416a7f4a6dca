"""What a domain declares about the network is what its environment does."""

import builtins
import random
import socket

import pytest

from recipe.agent_contracts.domains import DOMAINS
from recipe.agent_contracts.transition.envs.terminal.dataset import row, train_scenarios
from recipe.agent_contracts.transition.envs.terminal.demonstrations import Quality, demonstrate
from recipe.agent_contracts.transition.envs.terminal.env import open_task
from recipe.agent_contracts.transition.parsers.hermes import HermesParser


def refuse(*arguments, **options):
    raise AssertionError("the environment reached outside its own state")


def test_every_domain_declares_its_policy_and_its_cost():
    for name, domain in DOMAINS.items():
        assert domain.network is not None, name
        assert domain.network.blocked and domain.network.enforced_by and domain.network.cost_in_realism, name


def test_terminal_episodes_open_no_connection_and_no_file(monkeypatch):
    scenarios = train_scenarios(12, seed=1)
    assert DOMAINS["terminal"].network.allowed == ()
    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(builtins, "open", refuse)
    with pytest.raises(AssertionError):
        socket.create_connection(("127.0.0.1", 9))
    kinds = set()
    for index, scenario in enumerate(scenarios):
        env, task = open_task(row(scenario, index, "temperature_1")["extra_info"]["task"])
        env.reset(task.task_id, task.seed)
        tools = {tool.name: tool.parameters for tool in env.tools()}
        for text in demonstrate(scenario, random.Random(0), {Quality.CORRECT: 1.0}).turns:
            action = HermesParser().parse(text, tools)
            kinds.add(action.kind)
            env.step(action)
    assert kinds == {"tool", "finish"}
