"""A small whole run in which every gate passes, as parts that a test may change before the project's writers write it.

Two updates of one group of four, a group that was dropped whole, and held-out episodes before and after, under both
decodings. All are episodes of the terminal environment, so they replay. What is said here of one episode, publication
or update is said once: the files follow from it.
"""

from __future__ import annotations

import contextlib
import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from recipe.agent_contracts.domains import load
from recipe.agent_contracts.evaluation.verifier_audit import BOUNDS, FILE, VerifierAudit, audit_verifier, write_audit
from recipe.agent_contracts.policy.manifest import PolicyManifest, Sampler, Scaffold
from recipe.agent_contracts.policy.scaffold_lock import ScaffoldLock, lock_of, record_attestation, write_lock
from recipe.agent_contracts.transition.envs.terminal.demonstrations import Quality
from recipe.agent_contracts.transition.replay import Replayer, recorded_action
from recipe.agent_contracts.transition.snapshots import BlobStore
from recipe.agent_contracts.transition.termination import Termination
from recipe.agent_contracts.transition.trajectory import TurnRecord
from recipe.agent_contracts.update.leases import GroupLease
from recipe.agent_contracts.update.ledger import Ledger, Measured
from recipe.agent_contracts.update.record import UpdateRecord
from recipe.agent_contracts.verification.human_labelled import HumanLabelled
from recipe.agent_contracts.verification.labels import Fault, Label, LabelledState, LabelSource
from recipe.agent_contracts.verification.layers import Verdict
from recipe.agent_contracts.verification.terminal import TerminalVerifier
from tests import verifiers
from tests.policies import scaffold
from tests.reported import METRICS, Rank, named, publish, write_experiment, write_metrics
from tests.unit.commands.conftest import played, write
from tests.unit.evaluation.control_runs import controls, update
from tests.unit.update.leasing import lease

SAMPLED = scaffold()
GREEDY = scaffold(sampler=Sampler(temperature=0.0, top_p=1.0, top_k=None))
NUM_RANKS = 2
VERSIONS = (0, 1, 2)
SIBLINGS = range(4)


@dataclass(kw_only=True)
class Parts:
    """What a run folder is made of."""

    contract: dict[str, Any]
    """`section__key` -> value, in place of the shipped contract's."""
    episodes: dict[str, list[TurnRecord]]
    """By trajectory id, in the order of writing."""
    updates: list[UpdateRecord]
    metrics: dict[int, dict[str, float]]
    lock: ScaffoldLock
    attested: dict[str, dict[str, list[str]]]
    """Role -> decoding -> scaffold hashes."""
    manifests: list[PolicyManifest]
    served: dict[int, str]
    """Version -> checksum of the weights as they were sent."""
    ranks: dict[int, list[Rank]]
    """Version -> what its ranks acknowledged."""
    leases: dict[str, GroupLease]
    applied: dict[str, int]
    """Group -> step that the ledger says used it."""
    refused: dict[str, str]
    """Group -> why it was discarded."""
    verifier_audit: VerifierAudit | None
    audits: dict[str, Any]
    """The other files in audits/, by name."""
    lost: list[str]
    """Files that are deleted once the run is written."""
    folder: Path
    """Where `passing` wrote the blobs."""

    def write(self) -> None:
        """Write everything but the blobs, which `passing` has written."""
        run = self.folder
        write_experiment(run, **self.contract)
        write_metrics(run, self.metrics)
        write_lock(run, self.lock)
        for role, scaffolds in self.attested.items():
            record_attestation(run, role, scaffolds)
        for policy in self.manifests:
            policy.write(run / "manifests")
        for version, checksum in self.served.items():
            publish(
                run, policy_version=version, weight_checksum=checksum, ranks=self.ranks[version], num_ranks=NUM_RANKS
            )
        write(run, *self.episodes.values())
        for record in self.updates:
            record.write(run)
        self._write_ledger(run)
        if self.verifier_audit is not None:
            write_audit(run / FILE, self.verifier_audit)
        for name, content in self.audits.items():
            (run / "audits").mkdir(exist_ok=True)
            (run / "audits" / f"{name}.json").write_bytes(msgspec.json.encode(content))
        for name in self.lost:
            (run / name).unlink()

    def _write_ledger(self, run: Path) -> None:
        with contextlib.closing(Ledger(run)) as ledger:
            ledger.lease(self.leases.values(), 1)
            for group, step in self.applied.items():
                ledger.complete(group, step, Measured(100, 0.5))
                ledger.admit([group], step)
                ledger.apply([group], step, step)
                ledger.commit([group], step)
            for group, reason in self.refused.items():
                ledger.refuse(group, "discarded", reason, 2, None)

    def change_turn(self, name: str, index: int, **changes: Any) -> None:
        """Replace fields of one turn."""
        turns = self.episodes[name]
        turns[index] = msgspec.structs.replace(turns[index], **changes)

    def change_turns(self, name: str, **changes: Any) -> None:
        """Replace fields of every turn of an episode."""
        for index in range(len(self.episodes[name])):
            self.change_turn(name, index, **changes)

    def change_identity(self, name: str, **changes: Any) -> None:
        """Replace fields of an episode's identity."""
        self.change_turns(name, episode=msgspec.structs.replace(self.episodes[name][0].episode, **changes))

    def change_update(self, step: int, **changes: Any) -> None:
        """Replace fields of the record of a step."""
        self.updates[step - 1] = msgspec.structs.replace(self.updates[step - 1], **changes)

    def change_row(self, step: int, index: int, **changes: Any) -> None:
        """Replace fields of one row of the record of a step."""
        rows = list(self.updates[step - 1].rows)
        rows[index] = msgspec.structs.replace(rows[index], **changes)
        self.change_update(step, rows=rows)

    def score(self, name: str) -> dict[str, float]:
        """The verifier's reward vector for an episode's final state."""
        blobs, turns = BlobStore(self.folder / "blobs"), self.episodes[name]
        grader, state = blobs.get(turns[0].episode.grader_hash), blobs.get(str(turns[-1].final_state_hash))
        return TerminalVerifier().score(json.loads(grader), state).vector()

    def audit_verifier(self, verifier: type) -> None:
        """Put the audit of another verifier in place of the shipped one's."""
        self.verifier_audit = audit_of(self.folder, self.episodes["a_0"], self.episodes["a_1"], verifier)

    def drop(self, num_episodes: int, turns: list[TurnRecord], **changes: Any) -> None:
        """Add copies of an episode that were recorded for training and never used."""
        for number in range(num_episodes):
            name = f"d{number}_0"
            self.episodes[name] = named(turns, name, partition="train", **changes)


def passing(run: Path) -> Parts:
    """The parts of a run in which every gate passes, with their blobs written into its folder."""
    blobs = BlobStore(run / "blobs")
    right, wrong = (played(blobs, "x_0", quality) for quality in (Quality.CORRECT, Quality.WRONG_KEY))
    episodes: dict[str, list[TurnRecord]] = {}

    def add(name: str, turns: list[TurnRecord], version: int, how: Scaffold = SAMPLED, **changes: Any) -> None:
        episodes[name] = sampled_by(named(turns, name, **changes), version, how)

    def evaluate(step: int) -> None:
        changes = {"partition": "val", "trainer_step": step, "data_source": "terminal/heldout_known_style"}
        add(f"v{step}_0", right if step else wrong, step, **changes)
        add(f"v{step}greedy_0", right, step, GREEDY, decoding="greedy", **changes)

    evaluate(0)
    for group, version in (("a", 0), ("b", 1), ("c", 1)):
        for index in SIBLINGS:
            add(f"{group}_{index}", right if index in (0, 3) else wrong, version, trainer_step=version + 1)
    # The dropped group lost a sibling to the machine.
    episodes["c_2"] = aborted(run, episodes["c_2"])
    evaluate(2)
    hashes = {"train": [SAMPLED.scaffold_hash]}
    held_out = {"heldout/temperature_1": [SAMPLED.scaffold_hash], "heldout/greedy": [GREEDY.scaffold_hash]}
    return Parts(
        contract={"consistency__max_abs_p95": 1e-5, "consistency__max_abs_max": 1e-4, "consistency__max_k3": 1e-6},
        episodes=episodes,
        updates=[_update(episodes, group, step) for group, step in (("a", 1), ("b", 2))],
        metrics={0: {}, 1: dict(METRICS), 2: dict(METRICS)},
        lock=lock_of("sha256:b", {"train": [SAMPLED], "heldout/temperature_1": [SAMPLED], "heldout/greedy": [GREEDY]}),
        attested={
            **{role: hashes | held_out for role in ("launcher", "trainer", "reward")},
            "rollout": hashes,
            "evaluator": held_out,
            "engine": {"engine": ["vllm:0 torch:0"]},
        },
        manifests=[policy_of(version, how) for version in VERSIONS for how in (SAMPLED, GREEDY)],
        served={version: weights_of(version) for version in VERSIONS},
        ranks={version: [Rank(rank, weights_of(version)) for rank in range(NUM_RANKS)] for version in VERSIONS},
        leases={group: lease(group, size=len(SIBLINGS)) for group in "abc"},
        applied={"a": 1, "b": 2},
        refused={"c": "sibling_failed"},
        verifier_audit=audit_of(run, right, wrong, TerminalVerifier),
        audits={
            "controls": controls(),
            "sync_async": {"loss_relative_difference": 2e-8, "gradient_relative_difference": 3e-7},
        },
        lost=[],
        folder=run,
    )


def weights_of(version: int) -> str:
    """Checksum of a version's weights."""
    return f"sha256:w{version}"


def policy_of(version: int, how: Scaffold) -> PolicyManifest:
    """The manifest of a version in a scaffold."""
    return PolicyManifest.of(how, policy_version=version, weight_checksum=weights_of(version), base_revision="sha256:b")


def sampled_by(turns: list[TurnRecord], version: int, how: Scaffold = SAMPLED) -> list[TurnRecord]:
    """An episode as another policy's."""
    return [
        msgspec.structs.replace(
            turn,
            behavior_policy_version=version,
            behavior_policy_version_end=version,
            behavior_weight_checksum=weights_of(version),
            policy_manifest_hash=policy_of(version, how).manifest_hash,
        )
        for turn in turns
    ]


def aborted(run: Path, turns: list[TurnRecord]) -> list[TurnRecord]:
    """An episode that the machine ended after its first turn: no verdict, but its state."""
    env = Replayer(run).opened(turns[0].episode)
    env.step(recorded_action(turns[0]))
    state = BlobStore(run / "blobs").put(env.export_state())
    return [msgspec.structs.replace(turns[0], termination_reason=Termination.INFRA_ABORT, final_state_hash=state)]


def audit_of(run: Path, right: list[TurnRecord], wrong: list[TurnRecord], verifier: type) -> VerifierAudit:
    """The audit of a verifier on what two episodes left, as often as the bounds ask for."""
    blobs = BlobStore(run / "blobs")
    states = (blobs.get(str(turns[-1].final_state_hash)) for turns in (right, wrong))
    return _audit(verifier, blobs.get(right[0].episode.grader_hash), *states)


@functools.cache
def _audit(verifier: type, grader: bytes, right: bytes, wrong: bytes) -> VerifierAudit:
    def states(final_state: bytes, number: int, *faults: Fault) -> list[LabelledState]:
        labels = [Label(LabelSource.CONSTRUCTED, "scripted", list(faults))]
        content = {"family": "set", "task_id": "t", "grader": json.loads(grader), "final_state": final_state}
        return [LabelledState(name=f"n{index}", labels=labels, **content) for index in range(number)]

    def verify(grader: dict[str, Any], state: bytes) -> Verdict:
        return Verdict(score=verifier().score(grader, state), verifier_version=verifier.version)

    labelled = [*states(right, BOUNDS.min_positives), *states(wrong, BOUNDS.min_negatives, Fault.NOT_DONE)]
    domain = msgspec.structs.replace(verifiers.domain_of(verifier), labelled=None)
    return audit_verifier("terminal", domain, verify, HumanLabelled(labelled, []))


class InThisProcess:
    """Stands in for `VerifierProcess`: the same verifier without the clean room, which no gate looks at."""

    def __init__(self, verifier: str, timeout_seconds: float) -> None:
        self._verifier = load(verifier)()

    def score(self, grader: dict[str, Any], final_state: bytes) -> Any:
        return self._verifier.score(grader, final_state)

    def close(self) -> None:
        pass


def _update(episodes: dict[str, list[TurnRecord]], group: str, step: int) -> UpdateRecord:
    names = [f"{group}_{index}" for index in SIBLINGS]
    return update(names, step, num_tokens=[num_tokens(episodes[name]) for name in names])


def num_tokens(turns: list[TurnRecord]) -> int:
    """Tokens that an episode's policy sampled."""
    return sum(len(turn.action_token_ids) for turn in turns)
