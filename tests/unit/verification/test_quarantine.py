"""Quarantine: appended by any number of processes, counted by stratum, released by a person with a reason."""

import multiprocessing

import pytest
from typer.testing import CliRunner

from recipe.agent_contracts.cli import app
from recipe.agent_contracts.errors import ContractViolation, InvalidMeasurement, RecordCorrupt, VerifierFailure
from recipe.agent_contracts.transition.snapshots import BlobStore
from recipe.agent_contracts.verification.quarantine import Entry, Quarantine, Reason, count, reason_of


def entry(trajectory_id="g_0", **changes):
    values = {
        "at": 1.0,
        "trajectory_id": trajectory_id,
        "group_id": "g",
        "task_id": "t",
        "family": "copy:csv->json",
        "length": "64-127",
        "reason": Reason.TAMPERED,
        "error": "an untouched measurement, found tamper_detected=1",
        "final_state_hash": "sha256:0",
        "reward": None,
    }
    return Entry(**{**values, **changes})


def add_many(run, name):
    quarantine = Quarantine(run)
    for number in range(50):
        quarantine.add(entry(f"{name}_{number}"))


def test_concurrent_writers_lose_nothing(tmp_path):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=add_many, args=(tmp_path, str(name))) for name in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len({one.entry.trajectory_id for one in Quarantine(tmp_path).held()}) == 200


def test_a_torn_last_line_hides_nothing_and_a_broken_one_is_named(tmp_path):
    Quarantine(tmp_path).add(entry())
    (part,) = (tmp_path / "quarantine").iterdir()
    whole = part.read_bytes()
    part.write_bytes(whole + whole[:-9])
    assert len(Quarantine(tmp_path).held()) == 1
    part.write_bytes(whole[:-9] + b"\n" + whole)
    with pytest.raises(RecordCorrupt, match="part-"):
        Quarantine(tmp_path).held()


def test_counts_are_of_what_is_still_held(tmp_path):
    quarantine = Quarantine(tmp_path)
    quarantine.add(entry("a"))
    quarantine.add(entry("b", family="set:csv->csv", reason=Reason.VERIFIER_FAILURE, reward={"task_success": 1.0}))
    quarantine.add(entry("c"))
    quarantine.release("c", by="a reader", why="the probe was ours")
    held = quarantine.held()
    assert count(held, "reason") == {"tampered": 1, "verifier_failure": 1}
    assert count(held, "family") == {"copy:csv->json": 1, "set:csv->csv": 1}
    assert count(held, "reward") == {"none": 1, "1": 1}
    assert count(held, "length") == {"64-127": 2}


@pytest.mark.parametrize(
    ("trajectory", "by", "why", "found"),
    [
        ("nobody", "x", "y", "not in quarantine"),
        ("a", " ", "y", "by="),
        ("a", "x", "", "why="),
        ("b", "x", "y", "already"),
    ],
)
def test_a_release_needs_a_held_episode_a_person_and_a_reason(tmp_path, trajectory, by, why, found):
    quarantine = Quarantine(tmp_path)
    quarantine.add(entry("a"))
    quarantine.add(entry("b"))
    quarantine.release("b", by="x", why="y")
    with pytest.raises(ContractViolation, match=found):
        quarantine.release(trajectory, by, why)


def test_what_is_quarantined_is_what_a_contract_speaks_of():
    arguments = ("contract", "this", "that")
    assert reason_of(InvalidMeasurement(*arguments)) is Reason.TAMPERED
    assert reason_of(VerifierFailure(*arguments)) is Reason.VERIFIER_FAILURE
    assert reason_of(ContractViolation(*arguments)) is Reason.CONTRACT
    assert reason_of(OSError("disk full")) is None


def test_the_command_lists_shows_and_releases(tmp_path):
    state = BlobStore(tmp_path / "blobs").put(b'{"files":{}}')
    Quarantine(tmp_path).add(entry("g_0", final_state_hash=state))
    run = CliRunner().invoke
    assert "g_0" in run(app, ["quarantine", "ls", str(tmp_path)]).output
    assert '{"files":{}}' in run(app, ["quarantine", "show", str(tmp_path), "g_0"]).output
    assert run(app, ["quarantine", "show", str(tmp_path), "other"]).exit_code == 2
    released = ["quarantine", "release", str(tmp_path), "g_0", "--by", "a reader", "--why", "a probe"]
    assert run(app, released).exit_code == 0
    assert run(app, released).exit_code == 2
    assert "0 in quarantine, 1 ever" in run(app, ["quarantine", "ls", str(tmp_path)]).output
