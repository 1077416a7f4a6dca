"""The conformance suite of environments: `check_environment` tests every property that an environment claims.

Each case is played once for reference; then, after a pause in which any clock moves on, every property plays it again
in fresh instances and names the first thing that came out differently. A property that the environment's `Capabilities`
do not claim is reported as not claimed, never as passed. What one process cannot show (another machine, another build)
is what `agent-contracts replay` is for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from recipe.agent_contracts.canonical import sha256_bytes
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.transition.actions import Action
from recipe.agent_contracts.transition.env import AgentEnv, Capabilities
from recipe.agent_contracts.transition.termination import Termination

PAUSE_SECONDS = 1.1
"""Longer than a clock's second, so that an environment that reads one gives another answer."""


class Property(StrEnum):
    """What the suite tests, in its order."""

    RESET_IS_EXACT = "reset_is_exact"
    REPLAY_IS_EXACT = "replay_is_exact"
    INVALID_ACTION_HAS_NO_EFFECT = "invalid_action_has_no_effect"
    INSTANCES_ARE_ISOLATED = "instances_are_isolated"
    RESTORE_IS_EXACT = "restore_is_exact"
    FORKS_ARE_ISOLATED = "forks_are_isolated"
    SEALED_SNAPSHOT_IS_IMMUTABLE = "sealed_snapshot_is_immutable"


class Verdict(StrEnum):
    HOLDS = "holds"
    FAILS = "fails"
    NOT_CLAIMED = "not_claimed"


class ContractCase(msgspec.Struct, frozen=True, kw_only=True):
    """One task and a sequence of actions that changes its state; best is one that also ends the episode."""

    open: Callable[[], AgentEnv]
    """A fresh instance that knows the task."""
    task_id: str
    seed: int = 0
    actions: Sequence[Action]
    score: Callable[[bytes], Any] | None = None
    """The verifier's reward for an exported state, to be compared too."""


class Checkable(Protocol):
    """An environment class that says how it is to be tested."""

    @classmethod
    def contract_cases(cls) -> Iterable[ContractCase]:
        """What the suite plays."""
        ...


class Finding(msgspec.Struct, frozen=True):
    """What came of one property over all cases."""

    property: Property
    verdict: Verdict
    divergence: str = ""
    """The first one, when the property fails."""


class Report(msgspec.Struct, frozen=True):
    """Every property's finding, in the order of `Property`."""

    capabilities: Capabilities
    findings: list[Finding]

    @property
    def failed(self) -> list[Finding]:
        """The findings that the environment must mend."""
        return [finding for finding in self.findings if finding.verdict is Verdict.FAILS]


class Step(msgspec.Struct, frozen=True):
    """What one action gave."""

    observation: str
    state_version: str
    termination: Termination | None


class Reference(msgspec.Struct, frozen=True):
    """How a case went the first time. `states[t]` and `exports[t]` are after t actions."""

    first_observation: str
    states: list[str]
    exports: list[str]
    steps: list[Step]
    score: Any


class Probe:
    """One property under test on one case: plays it and raises at the first difference from the reference."""

    def __init__(self, tested: Property, case: ContractCase, reference: Reference, exact: bool) -> None:
        self.tested = tested
        self.case = case
        self.reference = reference
        self.exact = exact
        self.num_actions = len(case.actions)

    def same(self, turn: int, field: str, expected: object, found: object) -> None:
        """Raise a ContractViolation when the two differ."""
        if expected != found:
            evidence = f"task {self.case.task_id}, {field} after {turn} of {self.num_actions} actions"
            raise ContractViolation(f"transition.{self.tested}", _short(expected), _short(found), evidence)

    def fresh(self) -> AgentEnv:
        """A new instance, reset and compared."""
        env = self.case.open()
        self.reset(env)
        return env

    def reset(self, env: AgentEnv) -> None:
        """Reset an instance and compare its initial state."""
        observation = env.reset(self.case.task_id, self.case.seed)
        self.same(0, "first observation", self.reference.first_observation, observation)
        self.at(env, 0)

    def at(self, env: AgentEnv, turn: int) -> None:
        """Compare the state after `turn` actions. Without exact replay only the initial state is promised."""
        if self.exact or turn == 0:
            self.same(turn, "state hash", self.reference.states[turn], env.state_hash())
            self.same(turn, "exported state", self.reference.exports[turn], sha256_bytes(env.export_state()))

    def follow(self, env: AgentEnv, start: int, stop: int | None = None) -> None:
        """Take the case's actions from `start` on, comparing each step, and the reward when none is left."""
        for turn in range(start, self.num_actions if stop is None else stop):
            step, expected = take(env, self.case.actions[turn]), self.reference.steps[turn]
            if self.exact:
                self.same(turn + 1, "observation", expected.observation, step.observation)
                self.same(turn + 1, "termination", expected.termination, step.termination)
                self.same(turn + 1, "state version", expected.state_version, step.state_version)
            self.same(turn + 1, "state version and state hash", step.state_version, env.state_hash())
            self.at(env, turn + 1)
        if stop is None and self.exact and self.case.score is not None:
            self.same(self.num_actions, "reward", self.reference.score, self.case.score(env.export_state()))


def take(env: AgentEnv, action: Action) -> Step:
    """Step an environment."""
    transition = env.step(action)
    return Step(transition.observation, transition.state_version, transition.termination)


def check_environment(environment: Checkable, pause_seconds: float = PAUSE_SECONDS) -> Report:
    """Test an environment class on its own cases.

    Args:
        environment: A class with `contract_cases()`.
        pause_seconds: Between the reference and everything else; see PAUSE_SECONDS.

    Raises:
        ValueError: when there is nothing to play.
        ContractViolation: when nothing that is played changes the state.
        Exception: what the environment itself raises while a case is played for the first time.
    """
    return check_cases(cases_of(environment), pause_seconds)


def cases_of(environment: Checkable) -> list[ContractCase]:
    """The cases that an environment class gives.

    Raises:
        ValueError: when it gives none, or one without actions.
    """
    if not hasattr(environment, "contract_cases"):
        raise ValueError(f"{environment} has no contract_cases(): it gives the tasks and actions to play")
    cases = list(environment.contract_cases())
    if not cases or not all(case.actions for case in cases):
        raise ValueError(f"{environment} gave {len(cases)} contract cases; at least one is needed, each with actions")
    return cases


def check_cases(cases: Sequence[ContractCase], pause_seconds: float = PAUSE_SECONDS) -> Report:
    """Test every property on every case; see `check_environment`.

    Raises:
        ContractViolation: when no action of any case changes the state, so that everything would pass unseen.
    """
    from recipe.agent_contracts.transition.conformance_properties import PROPERTIES

    capabilities = cases[0].open().capabilities
    references = [_play(case) for case in cases]
    if not any(len(set(reference.states)) > 1 for reference in references):
        raise ContractViolation("transition.contract_cases", "an action that changes the state", "none in any case")
    time.sleep(pause_seconds)
    findings = []
    for name, (claimed, check) in PROPERTIES.items():
        probes = [Probe(name, *pair, capabilities.exact_replay) for pair in zip(cases, references, strict=True)]
        findings.append(_finding(name, check, probes) if claimed(capabilities) else Finding(name, Verdict.NOT_CLAIMED))
    return Report(capabilities, findings)


def _play(case: ContractCase) -> Reference:
    env = case.open()
    first_observation = env.reset(case.task_id, case.seed)
    states, exports, steps = [env.state_hash()], [sha256_bytes(env.export_state())], []
    for action in case.actions:
        steps.append(take(env, action))
        states.append(env.state_hash())
        exports.append(sha256_bytes(env.export_state()))
    score = None if case.score is None else case.score(env.export_state())
    return Reference(first_observation, states, exports, steps, score)


def _finding(name: Property, check: Callable[[Probe], None], probes: list[Probe]) -> Finding:
    for probe in probes:
        try:
            check(probe)
        except Exception as error:  # the boundary: whatever an environment raises is a finding about it
            return Finding(name, Verdict.FAILS, f"{type(error).__name__}: {error}")
    return Finding(name, Verdict.HOLDS)


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"
