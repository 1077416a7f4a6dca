"""Turn records: the hash chain, torn lines, and reading episodes back."""

import pytest

from recipe.agent_contracts.errors import RecordCorrupt
from recipe.agent_contracts.transition.termination import Termination
from recipe.agent_contracts.transition.trajectory import TrajectoryWriter, episodes, read_part
from tests.records import turn_record


def write(tmp_path, records, part="a"):
    writer = TrajectoryWriter(tmp_path / "trajectories", part)
    writer.append(records)
    writer.close()
    return writer.path


def test_records_come_back_as_they_were_written(tmp_path):
    records = [turn_record(turn=0), turn_record(turn=1, termination_reason=Termination.AGENT_FINISH)]
    found = list(read_part(write(tmp_path, records)))
    assert [record.turn for record in found] == [0, 1]
    assert found[1].termination_reason is Termination.AGENT_FINISH
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


def test_a_torn_last_line_is_reported_after_every_whole_line(tmp_path):
    path = write(tmp_path, [turn_record(turn=turn) for turn in range(2)])
    path.write_bytes(path.read_bytes()[:-10])
    found = []
    with pytest.raises(RecordCorrupt, match="torn last line"):
        for record in read_part(path):
            found.append(record.turn)
    assert found == [0]


def test_a_part_is_never_overwritten(tmp_path):
    write(tmp_path, [turn_record(turn=0)])
    with pytest.raises(FileExistsError):
        write(tmp_path, [turn_record(turn=0)])


def test_episodes_are_grouped_across_parts(tmp_path):
    write(tmp_path, [turn_record("e1", turn=0), turn_record("e1", turn=1), turn_record("e2", turn=0)], "a")
    write(tmp_path, [turn_record("e3", turn=0)], "b")
    assert [(turns[0].episode.trajectory_id, len(turns)) for turns in episodes(tmp_path)] == [
        ("e1", 2),
        ("e2", 1),
        ("e3", 1),
    ]
