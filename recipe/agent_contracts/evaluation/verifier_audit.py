"""How often a verifier errs on labelled states: counts, Wilson intervals (Wilson 1927) and bounds set beforehand.

A false positive overlooks a fault of a wrong state, a false negative does not accept a right one. They are reported
together: a verifier that rejects more has fewer of the first and more of the second. A state for which it gave no
verdict is in neither rate; it is counted beside them, and fails the audit. Every shipped verifier gives yes or no, so
there is no calibration error and no Brier score; and one verifier cannot disagree with itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from recipe.agent_contracts.domains import Domain, load
from recipe.agent_contracts.errors import ContractViolation, VerifierFailure
from recipe.agent_contracts.evaluation.statistics import wilson
from recipe.agent_contracts.transition.snapshots import BlobStore, write_atomically
from recipe.agent_contracts.transition.trajectory import episodes
from recipe.agent_contracts.verification.human_labelled import HumanLabelled
from recipe.agent_contracts.verification.labels import LabelledState, hash_of, is_wrong_about, require_agreement
from recipe.agent_contracts.verification.layers import Verdict

FILE = Path("audits") / "verifier.json"
GIVE_UP_AFTER = 5
"""Failures to give a verdict after which a verifier is not asked again: a broken one would take hours to fail."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What every family must keep, decided before anything was measured.

    With 0 of 300 the upper end of Wilson's 95% interval is 1.26%: that much a pass can claim and no more. A false
    negative withholds a reward that was earned, which slows learning and does not misdirect it; so some may remain.
    """

    max_false_positives: int = 0
    min_negatives: int = 300
    max_false_negative_rate: float = 0.05
    min_positives: int = 100
    max_no_verdict: int = 0


BOUNDS = Bounds()


class Interval(msgspec.Struct, frozen=True):
    """Wilson's 95% interval of a rate."""

    low: float
    high: float


class Errors(msgspec.Struct, frozen=True, kw_only=True):
    """What a verifier got wrong on some states."""

    false_positives: int
    num_negatives: int
    """Wrong states with a verdict."""
    false_negatives: int
    num_positives: int
    """Right states with a verdict."""
    num_no_verdict: int
    """States without one: neither right nor wrong."""
    num_whitespace_rejected: int
    """Of the negatives: refused for white space alone. What strictness costs, were such states called right."""
    false_positive_interval: Interval | None
    """Null: there is no negative."""
    false_negative_interval: Interval | None
    """Null: there is no positive."""


class FamilyErrors(Errors, frozen=True, kw_only=True):
    """One family, also by who labelled. A state with two labels is in both sources and once in the family."""

    sources: dict[str, Errors]
    failures: list[str]
    """Bounds that do not hold, in words. Empty: the family passes."""


class VerifierAudit(Errors, frozen=True, kw_only=True):
    """`audits/verifier.json`. Gate G17 reads `passed` and the counts, the report the counts."""

    passed: bool
    domain: str
    verifier: str
    verifier_version: str
    fixture_hash: str
    """Of the domain's labelled states; human labels are not in it."""
    bounds: Bounds
    families: dict[str, FamilyErrors]
    sources: dict[str, Errors]
    disputed: list[str]
    """Episodes about which people disagree; in no rate."""
    first_failure: str | None
    """Why there was no verdict, the first time. Null: there always was one."""


class _Judged(msgspec.Struct, frozen=True):
    state: LabelledState
    is_error: bool | None
    """None: no verdict."""


def audit_verifier(
    name: str, domain: Domain, verify: Callable[[dict[str, Any], bytes], Verdict], human: HumanLabelled
) -> VerifierAudit:
    """Score the labelled states of a domain, and those that people labelled.

    Args:
        name: The domain's name.
        domain: Its verifier and labelled states; one without any has no more than the human labels.
        verify: Gives a verdict or raises `VerifierFailure`, as `VerifierPool.verify` does.
        human: A run's human labels.

    Raises:
        ContractViolation: ``verification.labels`` when two sources of labels disagree.
    """
    fixture: list[LabelledState] = load(domain.labelled)() if domain.labelled else []
    states = [*fixture, *human.states]
    require_agreement(states)
    judged, version, first_failure = _judge(states, verify)
    families = {family: _family(found) for family, found in sorted(_grouped(judged, _family_of).items())}
    whole = msgspec.structs.asdict(_errors(judged))
    return VerifierAudit(
        **whole,
        passed=bool(families) and not any(found.failures for found in families.values()),
        domain=name,
        verifier=domain.verifier,
        verifier_version=version,
        fixture_hash=hash_of(fixture),
        bounds=BOUNDS,
        families=families,
        sources=_by_source(judged),
        disputed=human.disputed,
        first_failure=first_failure,
    )


def require_same_verifier(run: Path, audit: VerifierAudit) -> None:
    """Refuse an audit of another verifier than the one that judged a run's episodes; one that never answered is any.

    Raises:
        ContractViolation: ``evaluation.verifier_audit`` when a recorded verdict is of another version; `RecordCorrupt`
            when records or blobs are damaged.
    """
    blobs = BlobStore(run / "blobs")
    references = {turns[-1].verdict_ref for turns in episodes(run)} - {None}
    verdicts = (msgspec.json.decode(blobs.get(str(reference)), type=Verdict) for reference in references)
    others = sorted({verdict.verifier_version for verdict in verdicts} - {audit.verifier_version})
    if others and audit.verifier_version:
        raise ContractViolation(
            "evaluation.verifier_audit",
            expected=f"a run judged by {audit.verifier_version}",
            found=f"verdicts of {', '.join(others)}",
            evidence=str(run),
            remedy="audit it with the code that judged it: a run's error rates are those of its own verifier",
        )


def write_audit(path: Path, audit: VerifierAudit) -> None:
    """Write an audit as JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, msgspec.json.format(msgspec.json.encode(audit)))


def _judge(
    states: Iterable[LabelledState], verify: Callable[[dict[str, Any], bytes], Verdict]
) -> tuple[list[_Judged], str, str | None]:
    """The judged states, the verifier's version and why it first gave no verdict."""
    judged: list[_Judged] = []
    versions: set[str] = set()
    failures: list[str] = []
    for state in states:
        verdict = None
        if len(failures) < GIVE_UP_AFTER:
            try:
                verdict = verify(state.grader, state.final_state)
            except VerifierFailure as failure:
                failures.append(f"{state.family}, {state.name}: {failure}")
        if verdict is None:
            judged.append(_Judged(state, None))
        else:
            versions.add(verdict.verifier_version)
            judged.append(_Judged(state, is_wrong_about(verdict.score, state)))
    return judged, ", ".join(sorted(versions)), failures[0] if failures else None


def _errors(judged: Sequence[_Judged]) -> Errors:
    decided = [found for found in judged if found.is_error is not None]
    negatives = [found for found in decided if not found.state.is_right]
    positives = [found for found in decided if found.state.is_right]
    false_positives, false_negatives = (sum(bool(f.is_error) for f in group) for group in (negatives, positives))
    return Errors(
        false_positives=false_positives,
        num_negatives=len(negatives),
        false_negatives=false_negatives,
        num_positives=len(positives),
        num_no_verdict=len(judged) - len(decided),
        num_whitespace_rejected=sum(found.state.is_whitespace_only and not found.is_error for found in negatives),
        false_positive_interval=_interval(false_positives, len(negatives)),
        false_negative_interval=_interval(false_negatives, len(positives)),
    )


def _interval(wrong: int, whole: int) -> Interval | None:
    if whole == 0:
        return None
    estimate = wilson(wrong, whole)
    return Interval(estimate.low, estimate.high)


def _family(judged: Sequence[_Judged]) -> FamilyErrors:
    errors = _errors(judged)
    failures = list(_failures(errors, BOUNDS))
    return FamilyErrors(**msgspec.structs.asdict(errors), sources=_by_source(judged), failures=failures)


def _failures(found: Errors, bounds: Bounds) -> Iterable[str]:
    if found.false_positives > bounds.max_false_positives:
        yield f"{found.false_positives} false positives, at most {bounds.max_false_positives}"
    if found.num_negatives < bounds.min_negatives:
        yield f"{found.num_negatives} negatives, at least {bounds.min_negatives}"
    if found.false_negatives > bounds.max_false_negative_rate * found.num_positives:
        rate = f"at most {bounds.max_false_negative_rate:.0%}"
        yield f"{found.false_negatives} of {found.num_positives} false negatives, {rate}"
    if found.num_positives < bounds.min_positives:
        yield f"{found.num_positives} positives, at least {bounds.min_positives}"
    if found.num_no_verdict > bounds.max_no_verdict:
        yield f"{found.num_no_verdict} without a verdict, at most {bounds.max_no_verdict}"


def _by_source(judged: Sequence[_Judged]) -> dict[str, Errors]:
    grouped = _grouped(judged, lambda found: {str(label.source) for label in found.state.labels})
    return {source: _errors(found) for source, found in sorted(grouped.items())}


def _family_of(found: _Judged) -> set[str]:
    return {found.state.family}


def _grouped(judged: Sequence[_Judged], names: Callable[[_Judged], set[str]]) -> dict[str, list[_Judged]]:
    grouped: dict[str, list[_Judged]] = defaultdict(list)
    for found in judged:
        for name in names(found):
            grouped[name].append(found)
    return grouped
