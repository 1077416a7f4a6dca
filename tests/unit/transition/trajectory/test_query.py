"""SQL and Parquet over records: typed as the schema, checked first, with and without compression."""

import duckdb
import pytest

from recipe.agent_contracts.errors import RecordCorrupt
from recipe.agent_contracts.transition.observations import ObservationCut
from recipe.agent_contracts.transition.termination import Termination
from recipe.agent_contracts.transition.trajectory import TrajectoryWriter
from recipe.agent_contracts.transition.trajectory.query import connect, export_parquet
from tests.records import turn_record
from tests.support import case


def write(run, *played, part="a", compression="none"):
    writer = TrajectoryWriter(run / "trajectories", part, compression)
    for turns in played:
        writer.append(turns)
    writer.close()
    return writer.path


def finished(trajectory_id, reward, **changes):
    end = {"turn": 1, "termination_reason": Termination.AGENT_FINISH, "reward_components": {"task_success": reward}}
    return [turn_record(trajectory_id), turn_record(trajectory_id, **{**end, **changes})]


def ask(run, query):
    with connect(run) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_columns_have_the_types_of_the_record(tmp_path, compression):
    cut = ObservationCut(10, "start", 20)
    write(tmp_path, finished("e", 1.0, observation_cut=cut), compression=compression)
    query = """
        SELECT action_token_ids, behavior_logprobs[2], tool_args->>'path', sampler_config->'top_k', episode.seed,
               reward_components['task_success'], observation_cut.num_chars, termination_reason, error
        FROM turns WHERE turn = 1
    """
    assert ask(tmp_path, query) == [([2, 3], -0.2, "a", "null", 1, 1.0, 20, "agent_finish", None)]


def test_episodes_are_one_row_each_with_what_their_last_turn_says(tmp_path):
    write(tmp_path, finished("e_0", 1.0), finished("e_1", 0.0))
    write(tmp_path, finished("f_0", 0.5), part="b", compression="zstd")
    query = "SELECT trajectory_id, num_turns, num_action_tokens, reward_components['task_success'] FROM episodes"
    assert ask(tmp_path, f"{query} ORDER BY 1") == [("e_0", 2, 4, 1.0), ("e_1", 2, 4, 0.0), ("f_0", 2, 4, 0.5)]


def test_an_episode_that_failed_is_no_zero_in_the_mean(tmp_path):
    h04 = case("H04")
    played = []
    for index, trajectory in enumerate(h04["input"]["trajectories"]):
        changes = {}
        if "raises_after_turn" in trajectory:
            changes = {"reward_components": None, "termination_reason": Termination.INFRA_ABORT}
            changes["error"] = trajectory["exception"]
        played.append(finished(f"g0_{index}", trajectory.get("reward"), **changes))
    write(tmp_path, *played)
    success = "reward_components['task_success']"
    query = f"SELECT count({success}), count(error), round(avg({success}), 6), any_value(error) FROM episodes"
    right = h04["check"]
    assert ask(tmp_path, query) == [
        (right["valid"], right["failed"], right["mean_reward_valid"], "RuntimeError('merge mismatch at token 17')")
    ]


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_torn_tail_is_no_row(tmp_path, compression):
    path = write(tmp_path, finished("e_0", 1.0), finished("e_1", 1.0), compression=compression)
    path.write_bytes(path.read_bytes()[:-40])
    assert ask(tmp_path, "SELECT count(*) FROM turns WHERE episode.trajectory_id = 'e_0'") == [(2,)]
    assert ask(tmp_path, "SELECT count(*) FROM turns WHERE turn IS NULL") == [(0,)]


def test_a_damaged_part_answers_nothing(tmp_path):
    path = write(tmp_path, finished("e_0", 1.0), finished("e_1", 1.0))
    path.write_bytes(path.read_bytes().replace(b'"task_success":1.0', b'"task_success":0.0', 1))
    with pytest.raises(RecordCorrupt, match=":3"):
        connect(tmp_path)


def test_a_run_without_records_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no trajectories"):
        connect(tmp_path)


def test_the_parquet_file_holds_every_turn(tmp_path):
    write(tmp_path, finished("e_0", 1.0), finished("e'1", 0.0))
    out = tmp_path / "it's" / "turns.parquet"
    assert export_parquet(tmp_path, out) == 4
    table = duckdb.read_parquet(str(out))
    assert table.filter("turn = 1").project("episode.trajectory_id, behavior_logprobs").order("1").fetchall() == [
        ("e'1", [-0.1, -0.2]),
        ("e_0", [-0.1, -0.2]),
    ]
    with pytest.raises(FileExistsError):
        export_parquet(tmp_path, out)
