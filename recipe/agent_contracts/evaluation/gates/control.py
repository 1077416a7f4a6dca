"""Gates that need another run's result: the verifier's error rates, and the control with shuffled rewards."""

from __future__ import annotations

import msgspec

from recipe.agent_contracts.evaluation.gates.base import Finding, Gate
from recipe.agent_contracts.evaluation.statistics import Estimate


class ErrorCounts(msgspec.Struct, frozen=True):
    """What the gate reads of audits/verifier.json."""

    passed: bool
    false_positives: int
    num_negatives: int
    false_negatives: int
    num_positives: int


class Nulls(msgspec.Struct, frozen=True):
    """What the gate reads of audits/controls.json."""

    shuffled: dict[str, Estimate]
    """Gain over the frozen baseline, by shuffle seed."""
    attempts_per_task: int


class VerifierErrorRates(Gate):
    """False positives and negatives of the verifier on labelled states are inside the preregistered bounds."""

    id, name, evidence = "G17", "verifier_error_rates", "audits/verifier.json"
    tolerance = "each family's bounds in the audit"

    def finding(self) -> Finding:
        audit = self.run.audit("verifier", ErrorCounts)
        if audit is None:
            return self._not_measured(f"{self.evidence} is missing: agent-contracts audit verifier")
        figure = (
            f"FP {audit.false_positives} of {audit.num_negatives}, FN {audit.false_negatives} of {audit.num_positives}"
        )
        return self._passed(figure) if audit.passed else self._failed(figure, self.evidence)


class ShuffledRewardNull(Gate):
    """With rewards shuffled inside each group, held-out success does not gain (audits/controls.json)."""

    id, name, evidence = "G19", "shuffled_reward_null", "audits/controls.json"
    tolerance = (
        "each of 3 shuffle seeds: lower bound of the gain not above 0, half-width at most 0.06, 100 tasks, 3 attempts"
    )
    max_half_width = 0.06
    min_tasks = 100
    min_attempts = 3
    min_seeds = 3

    def finding(self) -> Finding:
        control = self.run.contract["evaluation"].get("control", "none")
        if control != "none":
            # Also keeps a control from ever being a go.
            return self._not_measured(
                f"this run is itself a control ({control}); the audit is in the normal arm's folder"
            )
        audit = self.run.audit("controls", Nulls)
        if audit is None or not audit.shuffled:
            return self._not_measured(f"{self.evidence} is missing: scripts/run_controls.sh")
        arms = audit.shuffled
        figure = ", ".join(f"seed {seed} {gain.mean:+.3f}" for seed, gain in sorted(arms.items()))
        few = self._too_few(audit)
        if few:
            return self._not_measured(few)
        wide = [seed for seed, gain in arms.items() if (gain.high - gain.low) / 2 > self.max_half_width]
        if wide:
            return self._not_measured(f"interval wider than +-{self.max_half_width} for seed {wide[0]}")
        gained = [seed for seed, gain in arms.items() if gain.low > 0]
        return self._failed(figure, f"seed {gained[0]}") if gained else self._passed(figure)

    def _too_few(self, audit: Nulls) -> str:
        """What the audit has less of than the contract asks for, in words."""
        found = {
            "tasks": (min(gain.num_tasks for gain in audit.shuffled.values()), self.min_tasks),
            "attempts a task": (audit.attempts_per_task, self.min_attempts),
            "shuffle seeds": (len(audit.shuffled), self.min_seeds),
        }
        return ", ".join(f"{have} {what}, {least} asked for" for what, (have, least) in found.items() if have < least)
