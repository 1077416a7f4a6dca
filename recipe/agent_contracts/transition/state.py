"""What an environment is at one moment: a `Snapshot`, and the `SnapshotRef` that names it in records.

A snapshot holds three of the four layers that a decision state has: the mutable state (a tree), entropy, and provenance
(its reference). The fourth, the agent's prefix, is `branch_point.BranchPoint`. Everything here is a value: nothing in a
snapshot can be changed, and its id is the hash of all that it holds.
"""

from __future__ import annotations

import functools
from enum import StrEnum
from random import Random

import msgspec

from recipe.agent_contracts.canonical import sha256_json
from recipe.agent_contracts.errors import RecordCorrupt
from recipe.agent_contracts.transition.tree import Directory


class SnapshotKind(StrEnum):
    """What a snapshot holds, and so what it can promise."""

    CANONICAL_STATE = "canonical_state"
    """The value of the whole world. Restoring takes a reference; exact by construction."""
    WORKSPACE = "workspace"
    """Files on disk and what a process left there. Exact for the files; running processes are not kept."""
    RECORD_REPLAY = "record_replay"
    """Only what was done. Restoring does it again, so it can claim no more than partial replay."""


class Entropy(msgspec.Struct, frozen=True):
    """Everything beside the state that a later step depends on. Forks of one snapshot start with equal entropy."""

    rng_state: tuple[int, tuple[int, ...], float | None] | None = None
    """`random.Random.getstate()` of the environment's own generator. None: it draws nothing."""
    clock_seconds: float | None = None
    """The mock clock. None: the environment tells no time."""
    queue: tuple[str, ...] = ()
    """Pending events in the order in which they will be served."""

    @property
    def entropy_hash(self) -> str:
        """`sha256:` of the canonical JSON."""
        return _hashed_once(self)

    def generator(self) -> Random:
        """A generator that goes on from `rng_state`.

        Raises:
            ValueError: when the environment declared that it draws nothing.
        """
        if self.rng_state is None:
            raise ValueError("this entropy holds no rng_state")
        generator = Random()
        generator.setstate(self.rng_state)
        return generator


NO_ENTROPY = Entropy()
"""Of an environment whose steps depend on state and action alone."""


class SnapshotRef(msgspec.Struct, frozen=True, kw_only=True):
    """Name and provenance of a snapshot: what records and leases hold."""

    schema_version: str = "snapshot-v1"
    kind: SnapshotKind
    exact_replay: bool
    """Whether the same actions after a restore give the same observations, state hashes and reward."""
    label: str
    task_id: str
    seed: int
    env_version: str
    parent_snapshot_id: str | None
    """What was snapshotted, restored or forked last since the reset. None: nothing."""
    state_hash: str
    """`AgentEnv.state_hash()` at the snapshot."""
    content_hash: str
    """Hash of the tree. Equal to state_hash when the kind is canonical_state."""
    entropy_hash: str

    @property
    def snapshot_id(self) -> str:
        """`sha256:` of this reference's canonical JSON, and so of everything that it names."""
        return _hashed_once(self)


@functools.lru_cache(maxsize=1024)
def _hashed_once(record: Entropy | SnapshotRef) -> str:
    # Each snapshot names its parent, and siblings share theirs.
    return sha256_json(record)


class Origin(msgspec.Struct, frozen=True):
    """Where the state of a running episode comes from: what an environment remembers for provenance."""

    task_id: str
    seed: int
    parent: SnapshotRef | None = None
    """What was snapshotted, restored or forked last since the reset."""


class Snapshot(msgspec.Struct, frozen=True):
    """A snapshot in memory. `snapshots.SnapshotStore` writes and reads it."""

    ref: SnapshotRef
    tree: Directory
    entropy: Entropy

    def verify(self) -> None:
        """Hash every byte again, trusting no hash that was kept.

        Raises:
            RecordCorrupt: when the content is not what the reference names.
        """
        pairs = {
            self.ref.content_hash: self.tree.rehashed(),
            self.ref.entropy_hash: sha256_json(self.entropy),
        }
        for expected, found in pairs.items():
            if expected != found:
                raise RecordCorrupt("transition.snapshot", expected, found, evidence=f"snapshot {self.ref.label!r}")
