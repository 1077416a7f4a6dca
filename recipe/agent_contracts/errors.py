"""Typed errors. Each names the contract, what was expected, what was found, and where the evidence lies.

`ContractViolation` stops the run or quarantines the sample. A user's mistake in a configuration is a
`ConfigContradiction` (a ValueError) and is raised before any process starts.
"""

from __future__ import annotations


class ContractViolation(RuntimeError):
    """A contract does not hold.

    Args:
        contract: Which contract, e.g. ``"transition.logprobs"``.
        expected: What the contract requires.
        found: What was observed instead.
        evidence: Where to look: a path, a trajectory id, a field.
        remedy: What the reader can do about it.
    """

    def __init__(self, contract: str, expected: object, found: object, evidence: str = "", remedy: str = "") -> None:
        self.contract = contract
        self.expected = expected
        self.found = found
        self.evidence = evidence
        self.remedy = remedy
        parts = [f"[{contract}] expected {expected}, found {found}"]
        if evidence:
            parts.append(f"evidence: {evidence}")
        if remedy:
            parts.append(remedy)
        super().__init__("; ".join(parts))

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions cross Ray's process boundary by pickle, which would call cls(message) otherwise.
        return type(self), (self.contract, self.expected, self.found, self.evidence, self.remedy)


class InvalidMeasurement(ContractViolation):
    """The measurement itself cannot be trusted (tampering): quarantine the episode, never score it."""


class VerifierFailure(ContractViolation):
    """The verifier gave no verdict (time-out, crash, malformed answer). Never a reward of 0."""


class GuaranteeUnavailable(ContractViolation):
    """No isolation on this machine gives a guarantee that is required. Never replaced by a weaker one in silence."""


class RecordCorrupt(ContractViolation):
    """A stored record does not match its hash chain or its schema."""


class ConfigContradiction(ValueError):
    """Two configuration keys contradict each other, or one has no meaning here. Names the keys and the fix."""
