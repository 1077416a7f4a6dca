"""Which environment and which verifier a task domain names. One entry a domain; both sides are import paths.

The environment and its verifier never import each other: they meet only in the exported state.
"""

from __future__ import annotations

import importlib
from typing import Any

import msgspec

from recipe.agent_contracts.transition.env import Capabilities


class NetworkPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What an environment may reach while a policy acts in it. Declared, and published with every firewall audit."""

    allowed: tuple[str, ...]
    """Hosts or services. Empty: none."""
    blocked: str
    enforced_by: str
    cost_in_realism: str
    """What the restriction takes from the construct that is measured."""


class Domain(msgspec.Struct, frozen=True):
    """One task domain."""

    environment: str
    """`module:function` that opens an environment for one task: f(task_json) -> (AgentEnv, task)."""
    verifier: str
    """`module:Class` of the verifier."""
    find_row: str | None = None
    """`module:function` that gives one task by name, for playing without a data file: f(split, index, seed) -> row."""
    canaries: str | None = None
    """`module:function` that gives final states whose verdict is known: f() -> list[Canary]. None: it has none."""
    labelled: str | None = None
    """`module:function` that gives what the verifier's error rates are measured on: f() -> list[LabelledState]."""
    environment_class: str | None = None
    """`module:Class` of the environment, for its capabilities. None: it declares none."""
    network: NetworkPolicy | None = None
    """None: it declares none, which fails the firewall's audit."""
    heldout_canary: str | None = None
    """`module:NAME` of the GUID that held-out files carry and nothing else may. None: they carry none."""


DOMAINS = {
    "terminal": Domain(
        environment="recipe.agent_contracts.transition.envs.terminal.env:open_task",
        verifier="recipe.agent_contracts.verification.terminal:TerminalVerifier",
        find_row="recipe.agent_contracts.transition.envs.terminal.dataset:find_row",
        canaries="recipe.agent_contracts.verification.terminal_canaries:canaries",
        labelled="recipe.agent_contracts.verification.terminal_labelled:labelled_states",
        environment_class="recipe.agent_contracts.transition.envs.terminal.env:TerminalEnv",
        network=NetworkPolicy(
            allowed=(),
            blocked="everything: no host, no socket, no file outside the task's own tree",
            enforced_by="the environment is a pure function of its state in memory; no tool opens a connection",
            cost_in_realism="Nothing can be looked up, installed or fetched, and no server answers late or wrongly: "
            "what is measured is editing from what the task itself shows.",
        ),
        heldout_canary="recipe.agent_contracts.transition.envs.terminal.dataset:HELDOUT_CANARY",
    ),
}


def domain_of(data_source: str) -> Domain:
    """The domain of a dataset row (`terminal/train` -> terminal).

    Raises:
        ValueError: naming the domains that exist.
    """
    name = data_source.split("/", 1)[0]
    if name not in DOMAINS:
        raise ValueError(f"data_source={data_source!r} names no task domain; known: {sorted(DOMAINS)}")
    return DOMAINS[name]


def capabilities_of(name: str) -> Capabilities:
    """What the environment of a registered domain promises of its snapshots.

    Raises:
        ValueError: when its class cannot be imported.
    """
    path = DOMAINS[name].environment_class
    if path is None:
        return Capabilities()
    declared: Capabilities = load(path).capabilities
    return declared


def load(path: str) -> Any:
    """Import `module:attribute`.

    Raises:
        ValueError: when the path has no such form or names nothing.
    """
    module_name, separator, attribute = path.partition(":")
    if not separator:
        raise ValueError(f"{path!r} is not of the form module:attribute")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{path!r} cannot be loaded: {error}") from error
