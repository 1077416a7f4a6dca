"""`agent-contracts trace`: lists, transcripts, SQL and Parquet of a recorded run."""

import duckdb
import msgspec
import pytest
from typer.testing import CliRunner

from recipe.agent_contracts.cli import app
from recipe.agent_contracts.transition.observations import ObservationCut
from recipe.agent_contracts.transition.trajectory.context import contexts
from tests.unit.commands.conftest import write


def call(*words):
    return CliRunner().invoke(app, ["trace", *map(str, words)])


def test_ls_has_a_line_for_each_episode_with_its_whole_id(run):
    result = call("ls", run)
    assert result.exit_code == 0
    assert [name in result.output for name in ("g_0", "g_1")] == [True, True]
    assert "2 of 2 episodes" in result.output
    assert "1 of 2 episodes" in call("ls", run, "--limit", 1).output


def test_show_is_a_transcript_of_turns_actions_observations_masks_log_probabilities_and_state_diffs(recorded):
    run, (right, wrong) = recorded
    write(run, right, wrong)
    result = call("show", run, "g_0")
    assert result.exit_code == 0, result.output
    for record, context in zip(right, contexts(right), strict=True):
        part = result.output.partition(f"\nturn {record.turn}\n")[2].partition("\nturn ")[0]
        assert f"context: {len(context)} tokens, {len(record.context_new_token_ids)} of them new" in part
        assert record.action_text in part
        action = f"tool {record.tool_name}" if record.action_kind == "tool" else record.action_kind
        assert f"action: {action}" in part
        assert (record.observation or "(an empty observation)") in part
        num_tokens = len(record.action_token_ids)
        assert f"{num_tokens} tokens, log probability {-0.5 * num_tokens:.3f}" in part
        assert part.count("-0.500") == num_tokens
        masks = [line.split()[1:] for line in part.splitlines() if line.startswith("  mask")]
        assert [bit for line in masks for bit in line] == ["1"] * num_tokens
    assert '~ /declared: null -> "finish"' in result.output
    assert f"agent_finish: {right[-1].reward_components}" in result.output


def test_show_says_where_a_state_does_not_come_out_as_recorded(recorded):
    run, (right, _) = recorded
    right[0] = msgspec.structs.replace(right[0], state_after="sha256:0")
    write(run, right)
    assert "state: replay gives another one than was recorded" in call("show", run, "g_0").output


def test_show_reads_an_episode_whose_task_cannot_be_opened(recorded):
    run, (right, _) = recorded
    unknown = msgspec.structs.replace(right[0].episode, data_source="x/y")
    write(run, [msgspec.structs.replace(record, episode=unknown) for record in right])
    result = call("show", run, "g_0")
    assert result.exit_code == 0
    assert "state: not replayed (data_source='x/y' names no task domain" in result.output


def test_show_tells_of_a_cut_an_invalid_turn_and_an_episode_without_an_end(recorded):
    run, (right, _) = recorded
    cut = msgspec.structs.replace(right[0], observation_cut=ObservationCut(5, "start", 40), invalid_reason="no_call")
    write(run, [cut])
    result = call("show", run, "g_0")
    assert "the model reads the start of it: 5 of 40 characters" in result.output
    assert "action: invalid, no_call" in result.output
    assert "the writer was killed before the episode was whole: no reward" in result.output


def test_sql_answers_from_both_views(run):
    result = call("sql", run, "SELECT count(*) AS n FROM turns JOIN episodes ON episode.trajectory_id = trajectory_id")
    assert result.exit_code == 0
    assert " n " in result.output


@pytest.mark.parametrize("query", ["SELECT nothing FROM turns", "no SQL"])
def test_a_query_that_cannot_be_answered_exits_with_2(run, query):
    result = call("sql", run, query)
    assert result.exit_code == 2
    assert "Error" in result.output


def test_export_writes_a_parquet_file(run, tmp_path):
    out = tmp_path / "turns.parquet"
    assert call("export", run, out).exit_code == 0
    assert duckdb.read_parquet(str(out)).project("count(DISTINCT episode.trajectory_id)").fetchall() == [(2,)]
    assert call("export", run, out).exit_code == 2


@pytest.mark.parametrize("words", [["ls"], ["show", "g_0"], ["sql", "SELECT 1"], ["export", "out.parquet"]])
def test_records_of_another_schema_are_refused_by_name(run, words):
    (part,) = (run / "trajectories").iterdir()
    part.write_text(part.read_text().replace("turn-v4", "turn-v1"))
    result = call(words[0], run, *words[1:])
    assert result.exit_code == 2
    assert "expected turn-v4, found turn-v1" in result.output
