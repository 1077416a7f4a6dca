"""Terminal verifiers that are wrong on purpose, and the labelled states of two families to catch them with."""

import functools
import os
from typing import Any

import msgspec

from recipe.agent_contracts.canonical import canonical_json
from recipe.agent_contracts.domains import DOMAINS, Domain
from recipe.agent_contracts.verification.labels import LabelledState
from recipe.agent_contracts.verification.terminal import TerminalVerifier
from recipe.agent_contracts.verification.terminal_labelled import labelled_states
from recipe.agent_contracts.verification.verifier import Score

FAMILIES = ("set:ini->ini", "cli:txt->json")


@functools.cache
def two_families() -> tuple[LabelledState, ...]:
    return tuple(state for state in labelled_states() if state.family in FAMILIES)


def domain_of(verifier: type) -> Domain:
    """The terminal domain with another verifier and the two families."""
    names = {"verifier": f"tests.verifiers:{verifier.__name__}", "labelled": "tests.verifiers:two_families"}
    return msgspec.structs.replace(DOMAINS["terminal"], **names)


class Scored:
    """Changes what the shipped verifier reads, or what it says."""

    version = "wrong-on-purpose-v1"

    def score(self, grader: dict[str, Any], final_state: bytes) -> Score:
        state = self.read(msgspec.json.decode(final_state), grader)
        return self.say(TerminalVerifier().score(grader, canonical_json(state)), state)

    def read(self, state: dict[str, Any], grader: dict[str, Any]) -> dict[str, Any]:
        return state

    def say(self, score: Score, state: dict[str, Any]) -> Score:
        return score


class IgnoresTrailingSpace(Scored):
    def read(self, state, grader):
        return {**state, "files": {path: content.rstrip() for path, content in state["files"].items()}}


class SkipsCollateral(Scored):
    def say(self, score, state):
        return msgspec.structs.replace(score, collateral_damage=0.0)


class SkipsRules(Scored):
    def say(self, score, state):
        return msgspec.structs.replace(score, policy_violation=0.0)


class AcceptsUndeclared(Scored):
    def read(self, state, grader):
        return {**state, "declared": state["declared"] or "finish"}


class IgnoresCase(Scored):
    def read(self, state, grader):
        expected = {content.lower(): content for content in grader["expected"].values()}
        files = {path: expected.get(content.lower(), content) for path, content in state["files"].items()}
        return {**state, "files": files}


class LooksForContentAnywhere(Scored):
    """Pays for right content wherever it lies; the damage is still counted."""

    def score(self, grader, final_state):
        state, score = msgspec.json.decode(final_state), super().score(grader, final_state)
        is_there = set(grader["expected"].values()) <= set(state["files"].values())
        return msgspec.structs.replace(score, task_success=float(is_there and state["declared"] == "finish"))


class AcceptsEverything(Scored):
    def say(self, score, state):
        return msgspec.structs.replace(score, task_success=1.0, collateral_damage=0.0, policy_violation=0.0)


class TooStrict(Scored):
    """Wants a newline at the end."""

    def say(self, score, state):
        is_ended = all(content.endswith("\n") for content in state["files"].values())
        return msgspec.structs.replace(score, task_success=score.task_success * is_ended)


class FailsOnWrongStates(Scored):
    """Gives a verdict only where it accepts."""

    def say(self, score, state):
        if score.task_success == 0:
            raise ValueError("no opinion")
        return score


class Dies(Scored):
    def say(self, score, state):
        os._exit(3)
