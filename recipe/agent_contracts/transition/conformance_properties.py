"""The properties of the conformance suite: for each, what must be claimed to test it, and the test.

A test gets a `Probe` and raises at the first difference. It uses nothing but the `AgentEnv` protocol.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from uuid import uuid4

import msgspec

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.transition.actions import Action, InvalidReason
from recipe.agent_contracts.transition.conformance import Probe, Property, take
from recipe.agent_contracts.transition.env import AgentEnv, Capabilities
from recipe.agent_contracts.transition.snapshots import BlobStore, SnapshotStore
from recipe.agent_contracts.transition.state import Entropy, Snapshot


def _reset_is_exact(probe: Probe) -> None:
    """In a fresh instance, and in a used one."""
    env = probe.fresh()
    for _ in range(2):
        probe.reset(env)
        for action in probe.case.actions:
            env.step(action)
    probe.reset(env)


def _replay_is_exact(probe: Probe) -> None:
    """The same actions from a reset."""
    probe.follow(probe.fresh(), 0)


def _invalid_action_has_no_effect(probe: Probe) -> None:
    """Before every action that a running episode still takes."""
    env = probe.fresh()
    for turn in range(probe.num_actions):
        for action in _invalid_actions(probe):
            before = _everything(env)
            step = take(env, action)
            probe.same(turn, f"termination by {action}", None, step.termination)
            probe.same(turn, f"whether {action} is answered", True, bool(step.observation))
            for field, (expected, found) in _pairs(before, _everything(env)):
                probe.same(turn, f"{field} after {action}", expected, found)
        probe.follow(env, turn, turn + 1)


def _instances_are_isolated(probe: Probe) -> None:
    first, second = probe.fresh(), probe.fresh()
    probe.follow(first, 0)
    probe.at(second, 0)
    probe.follow(second, 0)
    probe.fresh()


def _restore_is_exact(probe: Probe) -> None:
    """At every turn: in the same instance, and from a store in an instance that was never reset."""
    for turn in range(probe.num_actions + 1):
        env = probe.fresh()
        probe.follow(env, 0, turn)
        snapshot = env.snapshot(f"turn {turn}")
        probe.follow(env, turn)
        env.restore(snapshot)
        _is_at(probe, env, turn, snapshot)
        probe.follow(env, turn)
        recovered = probe.case.open()
        recovered.restore(_stored_and_loaded(snapshot))
        _is_at(probe, recovered, turn, snapshot)
        probe.follow(recovered, turn)
        snapshot.verify()


def _forks_are_isolated(probe: Probe) -> None:
    """At every turn: neither branch moves the other, the parent or the snapshot, nor the parent a branch."""
    for turn in range(probe.num_actions):
        parent = probe.fresh()
        probe.follow(parent, 0, turn)
        snapshot = parent.snapshot(f"turn {turn}")
        first, second, third = (parent.fork(snapshot, branch_id) for branch_id in "abc")
        probe.follow(first, turn)
        for other in (parent, second):
            _is_at(probe, other, turn, snapshot)
        probe.follow(second, turn)
        probe.follow(parent, turn)
        _is_at(probe, third, turn, snapshot)
        probe.follow(third, turn)
        _is_at(probe, first, probe.num_actions, None)
        _is_at(probe, parent.fork(snapshot, "d"), turn, snapshot)
        snapshot.verify()


def _sealed_snapshot_is_immutable(probe: Probe) -> None:
    """Not by another step, nor by another episode, nor by whoever restores it."""
    env = probe.fresh()
    probe.follow(env, 0)
    sealed = env.snapshot("final")
    if probe.reference.steps[-1].termination is not None:
        for action in probe.case.actions:
            with contextlib.suppress(ContractViolation):
                env.step(action)
            probe.at(env, probe.num_actions)
    probe.reset(env)
    probe.follow(env, 0)
    sealed.verify()
    if env.capabilities.restore:
        reader = probe.case.open()
        reader.restore(sealed)
        probe.at(reader, probe.num_actions)


PROPERTIES: dict[Property, tuple[Callable[[Capabilities], bool], Callable[[Probe], None]]] = {
    Property.RESET_IS_EXACT: (lambda _: True, _reset_is_exact),
    Property.REPLAY_IS_EXACT: (lambda claims: claims.exact_replay, _replay_is_exact),
    Property.INVALID_ACTION_HAS_NO_EFFECT: (lambda _: True, _invalid_action_has_no_effect),
    Property.INSTANCES_ARE_ISOLATED: (lambda _: True, _instances_are_isolated),
    Property.RESTORE_IS_EXACT: (lambda claims: claims.restore and claims.exact_replay, _restore_is_exact),
    Property.FORKS_ARE_ISOLATED: (lambda claims: claims.fork and claims.exact_replay, _forks_are_isolated),
    Property.SEALED_SNAPSHOT_IS_IMMUTABLE: (lambda _: True, _sealed_snapshot_is_immutable),
}


def _invalid_actions(probe: Probe) -> Iterator[Action]:
    """One for each reason, and each valid action of the case as a parser would have refused it."""
    yield from (Action("invalid", invalid_reason=reason) for reason in InvalidReason)
    for action in probe.case.actions:
        yield msgspec.structs.replace(action, kind="invalid", invalid_reason=InvalidReason.BAD_ARGUMENTS)


def _everything(env: AgentEnv) -> tuple[str, bytes, Entropy]:
    """All that an invalid action must leave alone. A mock clock may tick: the action consumes its step."""
    entropy = msgspec.structs.replace(env.snapshot("probe").entropy, clock_seconds=None)
    return env.state_hash(), env.export_state(), entropy


def _pairs(
    before: tuple[str, bytes, Entropy], after: tuple[str, bytes, Entropy]
) -> Iterator[tuple[str, tuple[object, object]]]:
    return zip(("state hash", "exported state", "entropy"), zip(before, after, strict=True), strict=True)


def _is_at(probe: Probe, env: AgentEnv, turn: int, snapshot: Snapshot | None) -> None:
    """Compare the state, and the entropy with the snapshot's: a branch must not draw other random numbers."""
    probe.at(env, turn)
    if snapshot is not None:
        probe.same(turn, "entropy", snapshot.ref.entropy_hash, env.snapshot("probe").ref.entropy_hash)


def _stored_and_loaded(snapshot: Snapshot) -> Snapshot:
    store = SnapshotStore(BlobStore(f"memory://conformance-{uuid4().hex}"))
    loaded = SnapshotStore(store.blobs).load(store.save(snapshot))
    store.blobs.filesystem.rm(store.blobs.root, recursive=True)
    return loaded
