"""Layers of verification, in the order in which they are asked, each optional and each recorded.

    authoritative state check / hidden tests / compiler (hard gate) -> rules and invariants -> independent semantic
    judge for what remains -> queue for human audit

A later layer can withhold what an earlier one granted and never grant what it refused: task_success is 1 only when
every hard gate passed, the rules only count, and the judge is not even asked when a gate did not pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Generic, TypeVar, final

import msgspec

from recipe.agent_contracts.verification.verifier import TERMS, Score


class LayerKind(StrEnum):
    """What a layer is, in the order in which layers are asked."""

    STATE_CHECK = "state_check"
    HIDDEN_TESTS = "hidden_tests"
    COMPILER = "compiler"
    RULES = "rules"
    JUDGE = "judge"
    HUMAN_AUDIT = "human_audit"

    @property
    def is_hard_gate(self) -> bool:
        return self in (LayerKind.STATE_CHECK, LayerKind.HIDDEN_TESTS, LayerKind.COMPILER)


class LayerResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one layer found."""

    layer: str
    """Its name, unique in a verdict."""
    kind: LayerKind
    passed: bool | None
    """None: the layer has no opinion (a judge that was not asked or did not answer; an audit that is still due)."""
    figures: dict[str, float] = {}
    """What it measured; entries of the reward vector go there under their own name, others under `extra`."""
    detail: str = ""
    """Why, in words: names of files and rules, an error."""
    evidence: str | None = None
    """Blob that holds the whole of it. None: `detail` does."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A score, how it came about, and what the place where it was computed guarantees."""

    score: Score
    layers: list[LayerResult] = []
    verifier_version: str
    guarantees: list[str] = []
    """Of the backend, as it states them itself; never the verifier's own claim."""
    backend: str = ""

    @property
    def passed_hard_gates(self) -> bool:
        """Whether there is success to withhold: what a judge is asked about."""
        return self.score.task_success > 0 and all(
            layer.passed is True for layer in self.layers if layer.kind.is_hard_gate
        )

    def with_layer(self, layer: LayerResult) -> Verdict:
        """This verdict and one more layer. Its figures join `extra`; nothing that is there changes.

        Raises:
            ValueError: when a figure would replace an entry of the vector.
        """
        taken = layer.figures.keys() & {*TERMS, *self.score.extra}
        if taken:
            raise ValueError(f"layer {layer.layer} would replace {sorted(taken)} of the reward vector")
        score = msgspec.structs.replace(self.score, extra={**self.score.extra, **layer.figures})
        return msgspec.structs.replace(self, score=score, layers=[*self.layers, layer])


CaseT = TypeVar("CaseT")


class LayeredVerifier(Generic[CaseT]):
    """A verifier made of layers. A subclass gives `version`, `read` and `layers`; the last are run in kind order.

    Example:
        class MyVerifier(LayeredVerifier[Case]):
            version = "my-verifier-v1"
            def layers(self): return [self._state_check, self._rules]
    """

    version: str

    def read(self, grader: dict[str, Any], final_state: bytes) -> CaseT:
        """What the layers judge.

        Raises:
            ValueError: when the grader or the state is malformed.
        """
        raise NotImplementedError

    def layers(self) -> Sequence[Callable[[CaseT], LayerResult]]:
        """The layers, hard gates first."""
        raise NotImplementedError

    def verify(self, grader: dict[str, Any], final_state: bytes) -> Verdict:
        """Ask every layer of the verifier and put the vector together.

        Raises:
            ValueError: when the grader or the state is malformed.
        """
        case = self.read(grader, final_state)
        return assemble([layer(case) for layer in self.layers()], self.version)

    @final
    def score(self, grader: dict[str, Any], final_state: bytes) -> Score:
        """The vector alone. To change a verdict, override `verify`: it is what the verifier's process runs."""
        return self.verify(grader, final_state).score


def assemble(results: Sequence[LayerResult], version: str) -> Verdict:
    """The verdict of a verifier's own layers.

    Raises:
        AssertionError: for layers out of order or without a hard gate, a gate without an opinion, or two layers that
            measure the same: a verifier like that is wrong for every episode.
    """
    kinds = [result.kind for result in results]
    order = [(not kind.is_hard_gate, kind is not LayerKind.RULES) for kind in kinds]
    assert order == sorted(order), f"hard gates come first, then rules: {kinds}"
    gates = [result for result in results if result.kind.is_hard_gate]
    assert gates and all(gate.passed is not None for gate in gates), "a verifier needs hard gates that decide"
    figures: dict[str, float] = {}
    for result in results:
        twice = figures.keys() & result.figures.keys() | {"task_success"} & result.figures.keys()
        assert not twice, f"layer {result.layer} measures {sorted(twice)}, which is not its to give"
        figures |= result.figures
    terms = {name: figures.pop(name) for name in TERMS if name in figures}
    score = Score(task_success=float(all(gate.passed for gate in gates)), extra=figures, **terms)
    return Verdict(score=score, layers=list(results), verifier_version=version)


def verdict_of(verifier: Any, grader: dict[str, Any], final_state: bytes) -> Verdict:
    """The verdict of any verifier; one without layers gives its score alone."""
    if isinstance(verifier, LayeredVerifier):
        return verifier.verify(grader, final_state)
    return Verdict(score=verifier.score(grader, final_state), verifier_version=verifier.version)
