"""Finding a group by raw bytes: the same records that a whole reading gives, and a broken neighbourhood is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.agent_contracts.errors import RecordCorrupt
from recipe.agent_contracts.transition.trajectory import TrajectoryWriter, read_run
from recipe.agent_contracts.transition.trajectory.find import find_group
from tests.records import turn_record

both = pytest.mark.parametrize("compression", ["none", "zstd"])


def write(run, records, part="a", compression="none"):
    writer = TrajectoryWriter(run / "trajectories", part, compression)
    for record in records:
        writer.append([record])
    writer.close()
    return writer.path


@both
@given(names=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["g", "gg", 'q"', "\u00e9"])), max_size=30))
def test_a_group_is_found_as_a_whole_reading_finds_it(tmp_path_factory, compression, names):
    run = tmp_path_factory.mktemp("run")
    for part in "abc":
        records = [turn_record(f"{group}_0", turn=turn) for turn, (at, group) in enumerate(names) if at == part]
        write(run, records, part, compression)
    for group in ("g", "gg", 'q"', "\u00e9"):
        expected = [record for record in read_run(run) if record.episode.group_id == group]
        assert [record for turns in find_group(run, group).values() for record in turns] == expected


def test_siblings_in_several_parts_come_in_order_of_their_names(tmp_path):
    write(tmp_path, [turn_record("g_1"), turn_record("other_0")], "a")
    write(tmp_path, [turn_record("g_0", turn=0), turn_record("g_0", turn=1)], "b")
    found = find_group(tmp_path, "g")
    assert {name: [record.turn for record in turns] for name, turns in found.items()} == {"g_0": [0, 1], "g_1": [0]}


def test_an_unknown_group_is_empty(tmp_path):
    write(tmp_path, [turn_record("g_0")])
    assert find_group(tmp_path, "h") == {}


@pytest.mark.parametrize("changed", [0, 1, 2])
def test_a_changed_byte_in_the_line_or_before_it_is_refused(tmp_path, changed):
    """Line 2's own change shows in line 3's link, which follows it."""
    path = write(tmp_path, [turn_record(f"{name}_0", turn=turn) for turn, name in enumerate("abgc")])
    lines = path.read_bytes().splitlines(keepends=True)
    lines[changed] = lines[changed].replace(b'"turn":', b'"turn":7')
    path.write_bytes(b"".join(lines))
    if changed == 0:  # not a neighbour: only a whole reading sees it
        assert list(find_group(tmp_path, "g")) == ["g_0"]
        with pytest.raises(RecordCorrupt):
            list(read_run(tmp_path))
    else:
        with pytest.raises(RecordCorrupt, match="byte"):
            find_group(tmp_path, "g")


def test_a_torn_last_line_is_not_given(tmp_path):
    path = write(tmp_path, [turn_record("g_0", turn=0), turn_record("g_0", turn=1)])
    path.write_bytes(path.read_bytes()[:-20])
    assert [record.turn for record in find_group(tmp_path, "g")["g_0"]] == [0]


def test_another_schema_is_refused_by_name(tmp_path):
    path = write(tmp_path, [turn_record("g_0")])
    path.write_text(path.read_text().replace("turn-v4", "turn-v1"))
    with pytest.raises(RecordCorrupt, match="expected turn-v4, found turn-v1"):
        find_group(tmp_path, "g")
