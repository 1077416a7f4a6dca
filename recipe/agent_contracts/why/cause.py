"""Why did this experience produce this gradient, and what came of it? One update, one episode or one token.

Backward from an update: its rows, the group and its siblings' returns, the verifier's vector, what the turn did, and
the policy that sampled it. Forward: the version that the update made, how it was published, and how it did on held-out
tasks. Everything is read from the run's records; nothing is computed again but state diffs.
"""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path

import msgspec

from recipe.agent_contracts.errors import ContractViolation, RecordCorrupt
from recipe.agent_contracts.evaluation.logged import HELD_OUT, StepMetrics, read_metrics
from recipe.agent_contracts.policy.manifest import PolicyManifest, manifest_path, read_manifest
from recipe.agent_contracts.policy.registry import Publication, Registry
from recipe.agent_contracts.transition.snapshots import BlobStore
from recipe.agent_contracts.transition.trajectory import TurnRecord
from recipe.agent_contracts.transition.trajectory.find import find_group
from recipe.agent_contracts.update.ledger import FILE_NAME, GroupRow, Ledger
from recipe.agent_contracts.update.record import UpdateRecord, UpdateRow, read_update
from recipe.agent_contracts.verification.layers import Verdict


class Consequence(msgspec.Struct, frozen=True):
    """What came of an update."""

    publications: list[Publication]
    """Of the version that it made, one a replica. Empty: it was never served (the run ended, or was killed)."""
    heldout_before: StepMetrics | None
    """The last evaluation at or before the version that the update started from. None: there was none."""
    heldout_after: StepMetrics | None
    """The first evaluation at or after the version that it made; it owes its figures to every update in between."""


class TokenCause(msgspec.Struct, frozen=True):
    """One sampled token and how it entered the loss."""

    turn: int
    position: int
    """In the turn's sampled tokens, from 0."""
    token_id: int
    behavior_logprob: float
    coefficient: float
    """Of its grad log pi in the score-function term: positive raises its log probability."""


class EpisodeCause(msgspec.Struct, frozen=True):
    """One episode's part in an update."""

    row: UpdateRow
    siblings: list[UpdateRow]
    """The rows of its group, itself included."""
    episodes: dict[str, list[TurnRecord]]
    """Records of the group by trajectory, also of siblings that were not trained on."""
    manifest: PolicyManifest | None
    """Who sampled it. None: no token was sampled."""
    verdict: Verdict | None
    """How its reward vector came about. None: it has none."""
    group: GroupRow | None
    """Lease and fate of its group. None: the run has no ledger."""

    @property
    def turns(self) -> list[TurnRecord]:
        return self.episodes[self.row.trajectory_id]

    def token(self, index: int) -> TokenCause:
        """The episode's action token `index`, counted from 0 over its turns.

        Raises:
            ContractViolation: ``update.token`` when the episode has no such token.
        """
        flat = itertools.chain.from_iterable(
            ((turn.turn, position) for position in range(len(turn.action_token_ids))) for turn in self.turns
        )
        place = next(itertools.islice(flat, index, None), None) if 0 <= index < self.row.num_action_tokens else None
        if place is None:
            known = f"an action token from 0 to {self.row.num_action_tokens - 1}"
            raise ContractViolation("update.token", known, index, self.row.trajectory_id)
        record, position = self.turns[place[0]], place[1]
        return TokenCause(
            turn=record.turn,
            position=position,
            token_id=record.action_token_ids[position],
            behavior_logprob=record.behavior_logprobs[position],
            coefficient=self.row.coefficient(index),
        )


def explain_episode(run: Path, update: UpdateRecord, trajectory_id: str) -> EpisodeCause:
    """Back from an update to one of its episodes.

    Raises:
        ContractViolation: ``update.row`` when the update did not use it; ``update.records`` when its records hold
            another number of sampled tokens than the update used.
    """
    row = next((row for row in update.rows if row.trajectory_id == trajectory_id), None)
    if row is None:
        remedy = "leave --trajectory out to list them"
        found = f"{len(update.rows)} others"
        raise ContractViolation("update.row", f"{trajectory_id} in step {update.step}", found, str(run), remedy)
    episodes = find_group(run, row.group_id)
    turns = episodes.get(trajectory_id, [])
    sampled = sum(len(turn.action_token_ids) for turn in turns)
    if sampled != row.num_action_tokens:
        expected = f"records with the {row.num_action_tokens} action tokens that step {update.step} used"
        raise ContractViolation("update.records", expected, f"{sampled} in {len(turns)} turns", trajectory_id)
    manifest_hash = turns[0].policy_manifest_hash
    return EpisodeCause(
        row=row,
        siblings=[other for other in update.rows if other.group_id == row.group_id],
        episodes=episodes,
        manifest=None if manifest_hash is None else read_manifest(manifest_path(run, manifest_hash)),
        verdict=_verdict(run, turns[-1].verdict_ref),
        group=_group(run, row.group_id),
    )


def _verdict(run: Path, reference: str | None) -> Verdict | None:
    if reference is None:
        return None
    try:
        return msgspec.json.decode(BlobStore(run / "blobs").get(reference), type=Verdict)
    except msgspec.MsgspecError as error:
        raise RecordCorrupt("verification.verdict", "a verdict", str(error), reference) from error


def _group(run: Path, group_id: str) -> GroupRow | None:
    if not (run / FILE_NAME).exists():
        return None
    with contextlib.closing(Ledger(run)) as ledger:
        return ledger.group(group_id)


def consequence_of(run: Path, update: UpdateRecord) -> Consequence:
    """Forward from an update to the version that it made."""
    made = update.output_policy_version
    registry = Registry(run)
    evaluated = [entry for entry in read_metrics(run) if any(name.startswith(HELD_OUT) for name in entry.values)]
    return Consequence(
        publications=[found for found in registry.publications() if found.policy_version == made],
        heldout_before=next((e for e in reversed(evaluated) if e.step <= update.input_policy_version), None),
        heldout_after=next((entry for entry in evaluated if entry.step >= made), None),
    )


def explain_step(run: Path, step: int) -> tuple[UpdateRecord, Consequence]:
    """One update and what came of it.

    Raises:
        ContractViolation: ``update.record`` when the run has no record of the step.
    """
    update = read_update(run, step)
    return update, consequence_of(run, update)
