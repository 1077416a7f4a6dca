"""Random actions, snapshots, restores and forks of environments whose world is a value, against a plain model."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.transition.actions import Action, InvalidReason
from recipe.agent_contracts.transition.canonical_state import CanonicalStateEnv
from recipe.agent_contracts.transition.env import Capabilities, ToolSchema
from recipe.agent_contracts.transition.envs.terminal.env import TerminalEnv
from recipe.agent_contracts.transition.snapshots import BlobStore, SnapshotStore
from recipe.agent_contracts.transition.state import Entropy, SnapshotKind
from recipe.agent_contracts.transition.termination import Termination
from recipe.agent_contracts.transition.tree import Directory, File
from tests.contracts.toy import OfficeEnv
from tests.support import case
from tests.unit.transition.envs.test_terminal_env import FILES, ODD_NAMES, make_env
from tests.unit.transition.trees import names

SIZES = [0, 1, 4096, 10 * 2**20]


@functools.cache
def content(size: int, fill: int) -> bytes:
    return bytes([fill]) * size


class DiskEnv(CanonicalStateEnv[Directory]):
    """Writes and deletes files of any name and size."""

    env_version = "disk-v1"

    def __init__(self) -> None:
        super().__init__({"disk": None})

    def tools(self) -> list[ToolSchema]:
        return []

    def _initial(self, task_id: str, seed: int) -> tuple[str, Directory]:
        return "", Directory.from_files({"first": b"1"})

    def _apply(self, world: Directory, action: Action) -> tuple[Directory, str, Termination | None]:
        args: dict[str, Any] = action.args or {}
        if action.name == "write":
            return world.set(args["path"], File(content(args["size"], args["fill"]))), "ok", None
        if world.get(args["path"]) is None:
            return world, "error: no_file", None
        return world.without(args["path"]), "ok", None

    def _tree(self, world: Directory) -> Directory:
        return world

    def _load(self, tree: Directory, entropy: Entropy) -> Directory:
        return tree

    def _export(self, world: Directory) -> bytes:
        return world.blob_hash.encode()


paths = st.lists(names, min_size=1, max_size=3).map("/".join)


class Branches(RuleBasedStateMachine):
    """Any number of instances, each followed by a dictionary."""

    envs = Bundle("envs")
    snapshots = Bundle("snapshots")

    @initialize(target=envs)
    def start(self):
        self.models: list[tuple[DiskEnv, dict[str, bytes]]] = []
        return self.opened(DiskEnv(), None, {"first": b"1"})

    def opened(self, env, snapshot, model):
        if snapshot is None:
            env.reset("disk", 0)
        self.models.append((env, dict(model)))
        return len(self.models) - 1

    @rule(env=envs, path=paths, size=st.sampled_from(SIZES), fill=st.integers(0, 3))
    def write(self, env, path, size, fill):
        instance, model = self.models[env]
        instance.step(Action("tool", "write", {"path": path, "size": size, "fill": fill}))
        model[path] = content(size, fill)

    @rule(env=envs, data=st.data())
    def delete(self, env, data):
        instance, model = self.models[env]
        path = data.draw(st.sampled_from(sorted(model)) if model else paths)
        instance.step(Action("tool", "delete", {"path": path}))
        model.pop(path, None)

    @rule(target=snapshots, env=envs)
    def snapshot(self, env):
        instance, model = self.models[env]
        return instance.snapshot("s"), dict(model), instance.state_hash()

    @rule(env=envs, taken=snapshots)
    def restore(self, env, taken):
        snapshot, model, state_hash = taken
        instance, own = self.models[env]
        instance.restore(snapshot)
        own.clear()
        own.update(model)
        assert instance.state_hash() == state_hash

    @rule(target=envs, env=envs, taken=snapshots)
    def fork(self, env, taken):
        snapshot, model, state_hash = taken
        forked = self.models[env][0].fork(snapshot, f"branch {len(self.models)}")
        assert forked.state_hash() == state_hash
        return self.opened(forked, snapshot, model)

    @rule(target=envs, taken=snapshots)
    def recover(self, taken):
        """Another process would do the same: all it has is the store."""
        snapshot, model, state_hash = taken
        store = SnapshotStore(BlobStore("memory://branches"))
        env = DiskEnv()
        env.restore(store.load(store.save(snapshot)))
        assert env.state_hash() == state_hash
        return self.opened(env, snapshot, model)

    @rule(taken=snapshots)
    def snapshots_never_change(self, taken):
        snapshot, model, state_hash = taken
        assert {path: file.data for path, file in snapshot.tree.walk()} == model
        assert snapshot.ref.state_hash == state_hash
        if sum(map(len, model.values())) < 2**20:
            snapshot.verify()

    @invariant()
    def every_instance_is_as_its_own_actions_made_it(self):
        for env, model in getattr(self, "models", []):
            assert {path: file.data for path, file in env._episode().world.walk()} == model


TestBranches = Branches.TestCase
TestBranches.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)

terminal_actions = st.lists(
    st.builds(
        lambda path, text: Action("tool", "write_file", {"path": path, "content": text}),
        st.sampled_from([*FILES, *ODD_NAMES, "app.ini/below", "a/b"]) | st.text(max_size=5),
        st.text(max_size=8),
    )
    | st.sampled_from(
        [
            Action("tool", "list_files", {}),
            Action("tool", "read_file", {"path": "notes.txt"}),
            Action("tool", "replace_in_file", {"path": "app.ini", "old": "red", "new": "blue"}),
            Action("tool", "replace_in_file", {"path": "app.ini", "old": "blue", "new": "red"}),
            Action("invalid", invalid_reason=InvalidReason.BAD_JSON),
        ]
    ),
    max_size=8,
)


def play(env: TerminalEnv, actions: list[Action]) -> list[tuple[Any, bytes]]:
    return [(env.step(action), env.export_state()) for action in actions]


@settings(max_examples=50)
@given(terminal_actions, terminal_actions, terminal_actions)
def test_any_suffix_of_terminal_comes_out_the_same_after_restore_and_in_forks(prefix, suffix, other):
    env = make_env()
    play(env, prefix)
    snapshot = env.snapshot("s")
    expected = play(env, suffix)
    fork, sibling = env.fork(snapshot, "1"), env.fork(snapshot, "2")
    play(sibling, other)
    assert play(fork, suffix) == expected
    env.restore(snapshot)
    play(fork, other)
    assert play(env, suffix) == expected
    snapshot.verify()


@pytest.mark.parametrize("size", SIZES)
def test_terminal_files_of_any_size_survive_a_restore(size):
    text = "é" * (size // 2) + "x" * (size % 2)
    env = make_env(files={"big": text, "small": "s"})
    snapshot = env.snapshot("s")
    env.step(Action("tool", "write_file", {"path": "big", "content": "gone"}))
    env.restore(snapshot)
    assert env.step(Action("tool", "read_file", {"path": "big"})).observation == text


def test_a_snapshot_of_another_environment_or_version_is_refused():
    env, other = make_env(), OfficeEnv()
    other.reset("office", 0)
    with pytest.raises(ContractViolation, match=r"transition\.restore.*terminal-v2.*office-v1"):
        env.restore(other.snapshot("s"))


def test_a_snapshot_of_an_unknown_task_is_refused():
    with pytest.raises(ContractViolation, match="known tasks"):
        TerminalEnv({}).restore(make_env().snapshot("s"))


@pytest.mark.parametrize("use", [lambda env: env.snapshot("s"), lambda env: env.state_hash(), TerminalEnv.export_state])
def test_nothing_is_there_before_the_first_reset(use):
    with pytest.raises(ContractViolation, match="reset before"):
        use(TerminalEnv({}))


def test_a_fork_and_a_restore_copy_nothing():
    env = make_env()
    snapshot = env.snapshot("s")
    fork = env.fork(snapshot, "1")
    assert fork._episode().world.files is snapshot.tree.directories["files"]


def test_a_restored_final_state_takes_no_more_steps():
    env = make_env()
    env.step(Action("finish", "finish", {}))
    fork = env.fork(env.snapshot("final"), "1")
    with pytest.raises(ContractViolation, match="running episode"):
        fork.step(Action("tool", "list_files", {}))


class Unforkable(OfficeEnv):
    capabilities = Capabilities(snapshot_kind=SnapshotKind.CANONICAL_STATE)


@pytest.mark.parametrize("use", [lambda env, s: env.restore(s), lambda env, s: env.fork(s, "1")])
def test_what_is_not_claimed_is_refused(use):
    env = Unforkable()
    env.reset("office", 0)
    with pytest.raises(ContractViolation, match="an environment that claims"):
        use(env, env.snapshot("s"))


def test_concurrent_episodes_read_their_own_writes():
    schedule, right = case("H13")["input"]["schedule"], case("H13")["check"]
    envs = {rollout: make_env() for rollout, *_ in schedule}
    for rollout, call, path, *written in schedule:
        if call == "put":
            envs[rollout].step(Action("tool", "write_file", {"path": path, "content": written[0]}))
        else:
            read = envs[rollout].step(Action("tool", "read_file", {"path": path})).observation
            assert read == right[f"{rollout}_get"]
