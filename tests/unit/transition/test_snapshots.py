"""Content-addressed stores: one blob a content, whole or absent, checked on every read, wherever the store lies."""

from __future__ import annotations

import multiprocessing
import multiprocessing.synchronize
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.agent_contracts.canonical import canonical_json, sha256_bytes
from recipe.agent_contracts.errors import RecordCorrupt
from recipe.agent_contracts.transition.snapshots import BlobStore, Collected, SnapshotStore, write_atomically
from recipe.agent_contracts.transition.state import Snapshot
from recipe.agent_contracts.transition.tree import Directory, File
from tests.contracts.toy import ACTIONS, OfficeEnv
from tests.unit.transition.trees import trees


@pytest.fixture(params=["folder", "file://", "memory://"])
def root(request, tmp_path) -> Path | str:
    names = {"folder": tmp_path, "file://": f"file://{tmp_path}", "memory://": f"memory://{uuid4().hex}"}
    return names[request.param]


def files_of(store: BlobStore) -> list[str]:
    return list(store.filesystem.find(store.root))


def overwrite(store: BlobStore, blob_hash: str, data: bytes) -> None:
    store.filesystem.pipe_file(store.path(blob_hash), data)


def snapshot_after(num_actions: int) -> Snapshot:
    env = OfficeEnv()
    env.reset("office", 7)
    for action in ACTIONS[:num_actions]:
        env.step(action)
    return env.snapshot(f"after {num_actions}")


def test_equal_content_is_stored_once(root):
    store = BlobStore(root)
    assert store.put(b"x") == BlobStore(root).put(b"x") == sha256_bytes(b"x")
    assert files_of(store) == [store.path(sha256_bytes(b"x"))]


@settings(max_examples=30)
@given(data=st.binary(max_size=200))
def test_what_is_put_is_got(tmp_path_factory, data):
    store = BlobStore(tmp_path_factory.mktemp("blobs"))
    assert store.get(store.put(data)) == data


@pytest.mark.parametrize("size", [0, 1, 10 * 2**20])
def test_sizes_up_to_ten_megabytes(root, size):
    store, data = BlobStore(root), os.urandom(1024) * (size // 1024) if size > 1 else b"x" * size
    assert store.get(store.put(data)) == data


def test_a_changed_blob_is_named(root):
    store = BlobStore(root)
    name = store.put(b"right")
    overwrite(store, name, b"wrong")
    with pytest.raises(RecordCorrupt, match=name):
        store.get(name)


def test_a_missing_blob_is_named(root):
    with pytest.raises(RecordCorrupt, match="no such blob"):
        BlobStore(root).get("sha256:" + "0" * 64)


def put_many(root: str, _: int) -> list[str]:
    store = BlobStore(root)
    return [store.put(b"%d" % (number % 20) * 1000) for number in range(60)]


@pytest.mark.parametrize("pool", ["threads", "processes"])
def test_concurrent_writers_of_equal_content_agree(tmp_path, pool):
    if pool == "threads":
        with ThreadPoolExecutor(4) as threads:
            names = list(threads.map(put_many, [str(tmp_path)] * 4, range(4)))
    else:
        with multiprocessing.get_context("fork").Pool(4) as processes:
            names = processes.starmap(put_many, [(str(tmp_path), number) for number in range(4)])
    assert names[1:] == names[:1] * 3
    store = BlobStore(tmp_path)
    assert sorted(files_of(store)) == sorted(store.path(name) for name in set(names[0]))
    assert all(sha256_bytes(store.get(name)) == name for name in names[0])


def test_a_writer_that_is_killed_leaves_whole_blobs_only(tmp_path):
    """Killed at 20 points of writing 1 MB blobs: what has a name is whole."""

    context = multiprocessing.get_context("fork")

    def write_on(root: Path, moment: int, wrote: multiprocessing.synchronize.Event) -> None:
        store = BlobStore(root)
        for number in range(10**6):
            store.put(b"%010d%010d" % (moment, number) * 50_000)
            wrote.set()

    for moment in range(20):
        wrote = context.Event()
        writer = context.Process(target=write_on, args=(tmp_path, moment, wrote))
        writer.start()
        assert wrote.wait(60)
        writer.join(moment * 0.001)
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
    store = BlobStore(tmp_path)
    whole = [path for path in files_of(store) if ".tmp-" not in path]
    assert len(whole) >= 20
    assert [path for path in whole if sha256_bytes(Path(path).read_bytes())[7:] != Path(path).name] == []
    SnapshotStore(store).collect_garbage(["sha256:" + Path(path).name for path in whole], [])
    assert sorted(files_of(store)) == sorted(whole)


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, b"before")
    with pytest.raises(TypeError):
        write_atomically(path, "not bytes")
    assert path.read_bytes() == b"before"


@pytest.mark.parametrize("num_actions", range(len(ACTIONS) + 1))
def test_a_stored_snapshot_is_loaded_with_all_its_layers(root, num_actions):
    snapshot = snapshot_after(num_actions)
    store = SnapshotStore(BlobStore(root))
    loaded = SnapshotStore(BlobStore(root)).load(store.save(snapshot))
    loaded.verify()
    assert loaded.ref == snapshot.ref
    assert loaded.entropy == snapshot.entropy
    assert loaded.tree.rehashed() == snapshot.tree.rehashed()


def test_a_snapshot_after_an_edit_adds_only_the_edited_path(tmp_path):
    tree = Directory.from_files({f"d{i}/e/f{j}": b"%d %d" % (i, j) for i in range(10) for j in range(10)})
    blobs = BlobStore(tmp_path)
    SnapshotStore(blobs).save_tree(tree)
    before = len(files_of(blobs))
    SnapshotStore(blobs).save_tree(tree.set("d3/e/f3", File(b"new")))
    assert len(files_of(blobs)) == before + 4  # the file, e, d3 and the root


@settings(max_examples=30)
@given(st.lists(trees, min_size=1, max_size=4), st.sets(st.integers(0, 3)))
def test_garbage_is_what_no_kept_snapshot_needs(all_trees, kept):
    store = SnapshotStore(BlobStore(f"memory://{uuid4().hex}"))
    base = snapshot_after(0)
    snapshots = []
    for tree in all_trees:
        ref = msgspec.structs.replace(base.ref, content_hash=tree.blob_hash, state_hash=tree.blob_hash)
        snapshots.append(Snapshot(ref, tree, base.entropy))
    ids = [store.save(snapshot) for snapshot in snapshots]
    loose = store.blobs.put(b"a task")
    store.collect_garbage([loose], [ids[index] for index in kept if index < len(ids)])
    needed = {loose}
    for index in kept:
        if index < len(ids):
            assert store.load(ids[index]).tree.rehashed() == all_trees[index].rehashed()
            needed |= store.references(ids[index])
    assert set(files_of(store.blobs)) == {store.blobs.path(name) for name in needed}
    # What was removed is written again, although this object wrote it before.
    assert store.load(store.save(snapshots[0])).tree.rehashed() == all_trees[0].rehashed()


def test_a_collection_says_what_it_removed(root):
    store = SnapshotStore(BlobStore(root))
    kept, _ = store.blobs.put(b"kept"), store.blobs.put(b"garbage")
    assert store.collect_garbage([kept], []) == Collected(num_blobs=1, num_bytes=len(b"garbage"))
    assert store.blobs.get(kept) == b"kept"


def test_a_collection_that_cannot_read_a_kept_snapshot_removes_nothing(root):
    store = SnapshotStore(BlobStore(root))
    snapshot_id = store.save(snapshot_after(3))
    overwrite(store.blobs, snapshot_after(3).ref.content_hash, b"damage")
    before = files_of(store.blobs)
    with pytest.raises(RecordCorrupt):
        store.collect_garbage([], [snapshot_id])
    assert files_of(store.blobs) == before


@pytest.mark.parametrize("layer", ["reference", "entropy", "directory", "file"])
@pytest.mark.parametrize("damage", ["changed", "removed"])
def test_damage_to_any_layer_is_named_on_read(root, layer, damage):
    snapshot = snapshot_after(3)
    store = SnapshotStore(BlobStore(root))
    snapshot_id = store.save(snapshot)
    name = {
        "reference": snapshot_id,
        "entropy": snapshot.ref.entropy_hash,
        "directory": snapshot.tree.directories["in"].blob_hash,
        "file": snapshot.tree.directories["in"].files["first"].blob_hash,
    }[layer]
    if damage == "changed":
        overwrite(store.blobs, name, b"damage")
    else:
        store.blobs.filesystem.rm_file(store.blobs.path(name))
    with pytest.raises(RecordCorrupt, match=name):
        store.load(snapshot_id)


def test_a_blob_of_another_kind_is_no_snapshot(root):
    store = SnapshotStore(BlobStore(root))
    with pytest.raises(RecordCorrupt, match="SnapshotRef"):
        store.load(store.blobs.put(canonical_json({"kind": "canonical_state"})))


def test_verify_trusts_no_hash_that_was_kept():
    snapshot = snapshot_after(3)
    object.__setattr__(snapshot.tree.directories["in"].files["first"], "data", b"evil")
    assert snapshot.tree.blob_hash == snapshot.ref.content_hash
    with pytest.raises(RecordCorrupt, match=snapshot.ref.content_hash):
        snapshot.verify()
