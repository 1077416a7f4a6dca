"""Everything that a report says about one run, read from its records once.

What the run does not hold is an empty value here and a "not measured" on the page. Nothing is written into the run but
`gates.json`, when there is none that is newer than the records it judges.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.evaluation.gates import judge_run
from recipe.agent_contracts.evaluation.gates.base import Finding, Run
from recipe.agent_contracts.evaluation.logged import StepMetrics
from recipe.agent_contracts.evaluation.report.tally import HELD_OUT, Slice, Tally, tally_of
from recipe.agent_contracts.policy import registry
from recipe.agent_contracts.policy.manifest import PolicyManifest, manifest_path, read_manifest
from recipe.agent_contracts.policy.registry import Publication
from recipe.agent_contracts.transition.trajectory import episodes
from recipe.agent_contracts.transition.trajectory.store import TornTail
from recipe.agent_contracts.update import ledger as ledgers
from recipe.agent_contracts.update.admission import lost_by_stratum
from recipe.agent_contracts.update.problems import find_problems
from recipe.agent_contracts.update.record import UpdateRecord
from recipe.agent_contracts.verification.quarantine import Held, Quarantine

SAMPLED = "temperature_1"
"""The decoding whose attempts differ from one another: what reliability is about."""


NEEDED = {
    "run": ("experiment",),
    "environment": ("domain",),
    "rollout": ("group_size", "max_version_lag"),
    "admission": ("max_age_seconds",),
    "consistency": ("max_abs_p95", "max_abs_max", "max_k3"),
    "credit": ("estimator", "reduction"),
    "update": ("objective",),
    "evaluation": ("attempts_per_task",),
}
"""What a report reads of the preregistered contract."""


class VerifierAudit(msgspec.Struct, frozen=True):
    """What a report reads of audits/verifier.json."""

    false_positives: int
    num_negatives: int
    false_negatives: int
    num_positives: int

    @property
    def errors(self) -> list[tuple[str, int, int]]:
        """(kind, wrong, of how many)."""
        return [
            ("false positives", self.false_positives, self.num_negatives),
            ("false negatives", self.false_negatives, self.num_positives),
        ]


class GateResults(msgspec.Struct, frozen=True):
    """What the gates found, or why they were not judged."""

    findings: list[Finding]
    problem: str | None


class Groups(msgspec.Struct, frozen=True):
    """What the ledger says."""

    counts: dict[str, int]
    reasons: Counter[str]
    strata: dict[tuple[str, str], tuple[int, int]]
    """(lost, all) by kind and value of a stratum."""
    problems: list[str]
    applied_at: dict[str, float]
    """When the update that used a group was entered, Unix seconds."""


class Measured:
    """One run as a report reads it.

    Args:
        folder: Run folder.
        label: What the report calls it.

    Raises:
        ContractViolation: ``evaluation.run`` when the folder holds no run; `RecordCorrupt` when a record is damaged.
    """

    def __init__(self, folder: Path, label: str) -> None:
        self.folder, self.label = folder, label
        self.run = Run(folder)
        self.contract: dict[str, Any] = self.run.require(NEEDED)
        self.torn: list[TornTail] = []
        self.tally: Tally = tally_of(episodes(folder, self.torn.append))
        self.updates: list[UpdateRecord] = self.run.updates
        self.metrics, self.not_finite = _finite(self.run.metrics)
        self.gates = _gates(self.run)
        self.groups = _groups(folder)
        self.publications = _publications(folder)
        self.manifest = _manifest(folder, self.publications)
        self.quarantined: list[Held] = Quarantine(folder).held()
        self.verifier_audit = self.run.audit("verifier", VerifierAudit)
        self.controls_audit = self.run.audit("controls", dict[str, Any])

    @property
    def prefix(self) -> str:
        """The label before a name, where there are two runs."""
        return f"{self.label}: " if self.label else ""

    def evaluations(self, decoding: str = SAMPLED) -> list[int]:
        """Steps with a held-out evaluation, ascending."""
        return self.tally.steps(HELD_OUT, decoding)

    def first(self, decoding: str = SAMPLED) -> Slice:
        """The first held-out evaluation."""
        steps = self.evaluations(decoding)
        return self.tally.at(HELD_OUT, decoding, steps[0]) if steps else Slice()

    def last(self, decoding: str = SAMPLED) -> Slice:
        """The last held-out evaluation."""
        steps = self.evaluations(decoding)
        return self.tally.at(HELD_OUT, decoding, steps[-1]) if steps else Slice()

    @property
    def main_decoding(self) -> str:
        """Where there are sampled attempts, those; else whatever was evaluated."""
        found = self.tally.decodings(HELD_OUT)
        return SAMPLED if SAMPLED in found or not found else found[0]

    @property
    def num_repeats(self) -> int:
        """k of pass^k: the declared attempts a task, or fewer where no task has so many."""
        made = max((len(found) for found in self.last().attempts.values()), default=0)
        return min(int(self.contract["evaluation"]["attempts_per_task"]), made)

    def series(self, name: str) -> list[tuple[float, float]]:
        """(step, value) of one logged metric, where it was logged and finite."""
        return [(float(entry.step), entry.values[name]) for entry in self.metrics if name in entry.values]

    def metric_names(self, prefix: str) -> list[str]:
        """Logged metrics below a prefix, sorted."""
        return sorted({name for entry in self.metrics for name in entry.values if name.startswith(prefix)})


def _finite(entries: list[StepMetrics]) -> tuple[list[StepMetrics], list[tuple[int, str, float]]]:
    """The metrics without values that are not finite, and those values by step and name."""
    kept, bad = [], []
    for entry in entries:
        bad += [(entry.step, name, value) for name, value in entry.values.items() if not math.isfinite(value)]
        kept.append(
            StepMetrics(entry.step, {name: value for name, value in entry.values.items() if math.isfinite(value)})
        )
    return kept, bad


def _gates(run: Run) -> GateResults:
    try:
        if _is_fresh(run.folder):
            content = (run.folder / "gates.json").read_bytes()
            return GateResults(msgspec.json.decode(content, type=list[Finding]), None)
        return GateResults(judge_run(run.folder), None)
    except (ContractViolation, ValueError, KeyError, OSError) as error:
        return GateResults([], f"{type(error).__name__}: {error}")


def _is_fresh(folder: Path) -> bool:
    """Whether gates.json is there and no older than anything it was judged from."""
    judged = folder / "gates.json"
    patterns = ("experiment.yaml", "metrics*.jsonl", "trajectories/part-*", "updates/step-*", "audits/*.json")
    newest = max((path.stat().st_mtime for pattern in patterns for path in folder.glob(pattern)), default=0.0)
    return judged.exists() and judged.stat().st_mtime >= newest


def _groups(folder: Path) -> Groups | None:
    if not (folder / ledgers.FILE_NAME).exists():
        return None
    with contextlib.closing(ledgers.Ledger(folder)) as book:
        refused = (ledgers.State.DISCARDED, ledgers.State.QUARANTINED, ledgers.State.ROLLED_BACK)
        return Groups(
            counts={str(state): count for state, count in book.counts().items()},
            reasons=Counter(f"{row.state}: {row.reason}" for state in refused for row in book.groups(state)),
            strata=lost_by_stratum(book.groups()),
            problems=find_problems(folder, book),
            applied_at=book.times(ledgers.State.APPLIED),
        )


def _publications(folder: Path) -> list[Publication]:
    # Opening the registry would create it.
    return registry.Registry(folder).publications() if (folder / registry.FILE_NAME).exists() else []


def _manifest(folder: Path, publications: list[Publication]) -> PolicyManifest | None:
    """Of the last version that was served. None: none was, or its file is not there."""
    served = [found for found in publications if found.active_at is not None and found.manifest_hash is not None]
    if not served:
        return None
    path = manifest_path(folder, str(served[-1].manifest_hash))
    return read_manifest(path) if path.exists() else None
