"""What people said of a run's episodes, as labelled states: each person's last word, and each episode once.

An episode about which people disagree is disputed: it is listed and enters no rate.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import msgspec

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.transition.snapshots import BlobStore
from recipe.agent_contracts.transition.trajectory import EpisodeIdentity, episodes
from recipe.agent_contracts.verification.audit_queue import HumanLabel, read_labels
from recipe.agent_contracts.verification.labels import Fault, Label, LabelledState, LabelSource


class HumanLabelled(msgspec.Struct, frozen=True):
    """The labelled episodes of a run."""

    states: list[LabelledState]
    disputed: list[str]
    """Episodes about which people disagree, by trajectory id."""


def human_labelled(run: Path) -> HumanLabelled:
    """Read a run's human labels with the states they are about.

    Raises:
        ContractViolation: ``verification.labels`` for a label of an episode that the run does not hold;
            `RecordCorrupt` when labels, records or blobs are damaged.
    """
    said: dict[str, dict[str, HumanLabel]] = defaultdict(dict)
    for label in read_labels(run):
        said[label.trajectory_id][label.by] = label
    if not said:
        return HumanLabelled([], [])
    identities = {turns[0].episode.trajectory_id: turns[0].episode for turns in episodes(run)}
    unknown = sorted(said.keys() - identities.keys())
    if unknown:
        raise ContractViolation("verification.labels", "labels of this run's episodes", unknown, str(run))
    blobs, states, disputed = BlobStore(run / "blobs"), [], []
    for name, labels in sorted(said.items()):
        if len({label.is_right for label in labels.values()}) > 1:
            disputed.append(name)
        else:
            states.append(_state(identities[name], list(labels.values()), blobs))
    return HumanLabelled(states, disputed)


def _state(identity: EpisodeIdentity, labels: list[HumanLabel], blobs: BlobStore) -> LabelledState:
    faults = [] if labels[0].is_right else [Fault.WRONG]
    return LabelledState(
        name=identity.trajectory_id,
        family=identity.family,
        task_id=identity.task_id,
        grader=msgspec.json.decode(blobs.get(labels[0].grader_hash)),
        final_state=blobs.get(labels[0].final_state_hash),
        labels=[Label(LabelSource.HUMAN, label.by, faults) for label in labels],
    )
