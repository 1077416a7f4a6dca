"""Garbage collection of a run's blobs removes what nothing names, and nothing else."""

import json
import os

import pytest

from recipe.agent_contracts.errors import RecordCorrupt
from recipe.agent_contracts.transition.reachability import MIN_AGE_SECONDS, collect_garbage, reachable_blobs
from recipe.agent_contracts.transition.snapshots import BlobStore
from recipe.agent_contracts.transition.trajectory import TrajectoryWriter
from tests.records import identity, turn_record


@pytest.fixture(params=["none", "zstd"])
def run(request, tmp_path):
    """A run whose records name a task, a grader, an observation and a tree of two parts."""
    store = BlobStore(tmp_path / "blobs")
    parts = [store.put(b"part 1"), store.put(b"part 2")]
    tree = store.put("\n".join(part.removeprefix("sha256:") for part in parts).encode())
    episode = identity("e", task_hash=store.put(b"task"), grader_hash=store.put(b"grader"))
    observation = store.put(b"a long observation")
    writer = TrajectoryWriter(tmp_path / "trajectories", "a", request.param)
    writer.append(
        [
            turn_record(episode=episode, observation=None, observation_ref=observation),
            turn_record(episode=episode, turn=1, final_state_hash=tree),
        ]
    )
    writer.close()
    (tmp_path / "quarantine").mkdir()
    (tmp_path / "quarantine" / "part-a.jsonl").write_text(json.dumps({"evidence": store.put(b"tampered")}))
    return tmp_path


def age(run):
    for path in (run / "blobs").glob("??/*"):
        old = path.stat().st_mtime - MIN_AGE_SECONDS - 60
        os.utime(path, (old, old))


def test_what_records_and_other_files_name_is_kept_through_every_level(run):
    assert len(reachable_blobs(run)) == 7
    age(run)
    assert collect_garbage(run, dry_run=False).num_removed == 0


def test_only_what_nothing_names_is_removed(run):
    store = BlobStore(run / "blobs")
    garbage = store.put(b"of an episode that was never recorded")
    age(run)
    assert collect_garbage(run, dry_run=True).num_removed == 1
    assert store.get(garbage)
    collected = collect_garbage(run, dry_run=False)
    assert (collected.num_kept, collected.num_removed, collected.removed_bytes) == (7, 1, 37)
    with pytest.raises(RecordCorrupt, match="no such blob"):
        store.get(garbage)
    for blob in reachable_blobs(run):
        store.get(blob)


def test_a_young_blob_may_belong_to_a_record_that_is_being_written(run):
    BlobStore(run / "blobs").put(b"just stored")
    assert collect_garbage(run, dry_run=False).num_removed == 0


def test_what_a_crashed_writer_left_half_written_is_removed(run):
    temporary = next((run / "blobs").glob("??")) / ".tmp-x"
    temporary.write_bytes(b"half")
    age(run)
    collect_garbage(run, dry_run=False)
    assert not temporary.exists()


def test_nothing_is_removed_while_a_record_is_damaged(run):
    (path,) = (run / "trajectories").iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"?" + content[101:])
    BlobStore(run / "blobs").put(b"garbage")
    age(run)
    with pytest.raises(RecordCorrupt):
        collect_garbage(run, dry_run=False)
    assert len(list((run / "blobs").glob("??/*"))) == 8
