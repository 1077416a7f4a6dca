"""The trajectory store: the hash chain, torn tails, failed writes, and reading episodes back."""

import logging
import random
import resource

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.agent_contracts.errors import RecordCorrupt
from recipe.agent_contracts.transition.termination import Termination
from recipe.agent_contracts.transition.trajectory import TornTail, TrajectoryWriter, episodes, read_part, read_run
from tests.records import turn_record

both = pytest.mark.parametrize("compression", ["none", "zstd"])


def write(run, records, part="a", compression="none"):
    """Write a part with one append a record, as a writer with one-turn episodes does."""
    writer = TrajectoryWriter(run / "trajectories", part, compression)
    for record in records:
        writer.append([record])
    writer.close()
    return writer.path


def whole(path):
    """Turns of the whole records, and the torn tails that were reported."""
    torn: list[TornTail] = []
    return [record.turn for record in read_part(path, torn.append)], torn


@both
def test_records_come_back_as_they_were_written(tmp_path, compression):
    records = [turn_record(turn=0), turn_record(turn=1, termination_reason=Termination.AGENT_FINISH)]
    found = list(read_part(write(tmp_path, records, compression=compression)))
    assert [msgspec.structs.replace(record, previous_hash=records[0].previous_hash) for record in found] == records
    assert found[1].previous_hash != found[0].previous_hash


def test_a_changed_byte_breaks_the_chain_at_the_next_line(tmp_path):
    path = write(tmp_path, [turn_record(turn=turn) for turn in range(3)])
    path.write_bytes(path.read_bytes().replace(b'"turn":1,', b'"turn":7,'))
    reader = read_part(path)
    next(reader), next(reader)
    with pytest.raises(RecordCorrupt, match=":3"):
        next(reader)


def test_a_removed_line_breaks_the_chain(tmp_path):
    path = write(tmp_path, [turn_record(turn=turn) for turn in range(3)])
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[2])
    with pytest.raises(RecordCorrupt, match=":2"):
        list(read_part(path))


def test_a_damaged_frame_is_corrupt_and_not_torn(tmp_path):
    path = write(tmp_path, [turn_record(turn=turn) for turn in range(3)], compression="zstd")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(RecordCorrupt):
        list(read_part(path))


def test_a_line_that_is_no_record_is_corrupt(tmp_path):
    path = write(tmp_path, [turn_record(turn=0)])
    path.write_bytes(path.read_bytes() + b'{"schema_version": "turn-v4"}\n')
    with pytest.raises(RecordCorrupt, match="missing required field"):
        list(read_part(path))


@pytest.mark.parametrize("fields", ['"prompt_token_ids":[1]', '"context_new_token_ids":[1]'])
def test_a_line_of_another_schema_is_refused_by_name(tmp_path, fields):
    path = write(tmp_path, [turn_record(turn=0)])
    path.write_text(path.read_text().replace("turn-v4", "turn-v1").replace('"context_new_token_ids":[1]', fields))
    with pytest.raises(RecordCorrupt, match=r"\[transition.schema\] expected turn-v4, found turn-v1"):
        list(read_part(path))


@both
@given(data=st.data())
def test_a_part_cut_anywhere_gives_every_whole_record_and_reports_the_rest(tmp_path_factory, compression, data):
    records = [turn_record(turn=turn, action_text="x" * turn) for turn in range(4)]
    path = write(tmp_path_factory.mktemp("run"), records, compression=compression)
    content = path.read_bytes()
    ends = frame_ends(tmp_path_factory, records, compression)
    kept = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:kept])
    found, torn = whole(path)
    num_whole = sum(end <= kept for end in ends)
    # All content of a compressed frame may be there when only its checksum is cut.
    assert found[:num_whole] == list(range(num_whole))
    assert len(found) <= num_whole + (compression == "zstd")
    assert [tail.line for tail in torn] == ([] if kept in (0, *ends) else [len(found) + 1])


def frame_ends(tmp_path_factory, records, compression):
    """Where each append ended."""
    writer = TrajectoryWriter(tmp_path_factory.mktemp("again") / "trajectories", "a", compression)
    ends = []
    for record in records:
        writer.append([record])
        ends.append(writer.path.stat().st_size)
    return ends


def test_a_torn_tail_hides_no_other_part_and_is_logged(tmp_path, caplog):
    path = write(tmp_path, [turn_record(turn=turn) for turn in range(2)], "a")
    write(tmp_path, [turn_record(turn=5)], "b")
    path.write_bytes(path.read_bytes()[:-10])
    with caplog.at_level(logging.WARNING):
        assert [record.turn for record in read_run(tmp_path)] == [0, 5]
    assert "part-a.jsonl:2: torn last line" in caplog.text


@both
def test_a_write_that_fails_leaves_the_part_as_it_was(tmp_path, compression):
    writer = TrajectoryWriter(tmp_path / "trajectories", "a", compression)
    writer.append([turn_record(turn=0)])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    noise = random.Random(0).randbytes(200_000).hex()
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        with pytest.raises(OSError, match="too large"):
            writer.append([turn_record(turn=1, action_text=noise)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    writer.append([turn_record(turn=2)])
    writer.close()
    assert whole(writer.path) == ([0, 2], [])


def test_a_part_is_never_overwritten(tmp_path):
    write(tmp_path, [turn_record(turn=0)])
    with pytest.raises(FileExistsError):
        write(tmp_path, [turn_record(turn=0)])


def test_episodes_are_grouped_across_parts(tmp_path):
    write(tmp_path, [turn_record("e1", turn=0), turn_record("e1", turn=1), turn_record("e2", turn=0)], "a")
    write(tmp_path, [turn_record("e3", turn=0)], "b", "zstd")
    assert [(turns[0].episode.trajectory_id, len(turns)) for turns in episodes(tmp_path)] == [
        ("e1", 2),
        ("e2", 1),
        ("e3", 1),
    ]
