"""SQL over a run's records, and their export to Parquet, through duckdb.

Two views: `turns` (one row a record, columns as in `TurnRecord`) and `episodes` (one row a trajectory). Every part's
hash chain is checked before the first query, so an answer never comes from a damaged line; a torn last line is
reported and left out.
"""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import msgspec

from recipe.agent_contracts.transition.trajectory.record import TurnRecord
from recipe.agent_contracts.transition.trajectory.store import checked_lines, parts

EPISODES = """
    CREATE VIEW episodes AS
    SELECT
        episode.trajectory_id AS trajectory_id,
        any_value(episode.group_id) AS group_id,
        any_value(episode.partition) AS partition,
        any_value(episode.trainer_step) AS trainer_step,
        any_value(episode.task_id) AS task_id,
        any_value(episode.family) AS family,
        any_value(episode.data_source) AS data_source,
        any_value(episode.decoding) AS decoding,
        any_value(episode.seed) AS seed,
        min(behavior_policy_version) AS behavior_policy_version,
        count(*) AS num_turns,
        sum(len(action_token_ids)) AS num_action_tokens,
        count(invalid_reason) AS num_invalid_turns,
        sum(list_sum(behavior_logprobs)) AS behavior_logprob,
        arg_max(termination_reason, turn) AS termination_reason,
        arg_max(reward_components, turn) AS reward_components,
        arg_max(error, turn) AS error,
        min(rollout_started_at) AS rollout_started_at,
        max(rollout_finished_at) AS rollout_finished_at
    FROM turns GROUP BY 1 ORDER BY rollout_started_at, trajectory_id
"""


def connect(run: Path) -> duckdb.DuckDBPyConnection:
    """An in-memory database with the run's views.

    Raises:
        RecordCorrupt: when a part's chain or schema does not hold.
        ValueError: when the run has no records.
    """
    paths = parts(run)
    if not paths:
        raise ValueError(f"{run} holds no trajectories")
    for path in paths:
        for _ in checked_lines(path):
            pass
    files = ", ".join(_quoted(str(path)) for path in paths)
    columns = ", ".join(f"{name}: {_quoted(kind)}" for name, kind in _columns(TurnRecord).items())
    connection = duckdb.connect()
    # The only line that cannot be parsed after the check is a torn one: it comes as a row of nulls.
    connection.execute(
        f"CREATE VIEW turns AS SELECT * FROM read_json([{files}], format='newline_delimited', ignore_errors=true, "
        f"columns={{{columns}}}) WHERE schema_version IS NOT NULL"
    )
    connection.execute(EPISODES)
    return connection


def export_parquet(run: Path, out: Path) -> int:
    """Write the `turns` view to a new Parquet file and return its number of rows.

    Raises:
        FileExistsError: when `out` exists.
        RecordCorrupt, ValueError: as `connect`.
    """
    if out.exists():
        raise FileExistsError(f"{out} exists; give a new file")
    with connect(run) as connection:
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = out.with_name(out.name + ".partial")
        connection.execute(f"COPY turns TO {_quoted(str(partial))} (FORMAT parquet, COMPRESSION zstd)")
        os.replace(partial, out)
        (num_rows,) = connection.execute(f"SELECT count(*) FROM {_quoted(str(out))}").fetchone() or (0,)
    return int(num_rows)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _columns(record: type) -> dict[str, str]:
    info = msgspec.inspect.type_info(record)
    assert isinstance(info, msgspec.inspect.StructType)
    return {field.encode_name: _sql_type(field.type) for field in info.fields}


def _sql_type(kind: msgspec.inspect.Type) -> str:
    """The duckdb type of a field. An object of values of any kind is JSON."""
    inspect = msgspec.inspect
    match kind:
        case inspect.UnionType(types=types):
            (only,) = [inner for inner in types if not isinstance(inner, inspect.NoneType)]
            return _sql_type(only)
        case inspect.StructType(cls=cls):
            return "STRUCT(" + ", ".join(f'"{name}" {inner}' for name, inner in _columns(cls).items()) + ")"
        case inspect.ListType(item_type=item):
            return _sql_type(item) + "[]"
        case inspect.DictType(value_type=inspect.FloatType()):
            return "MAP(VARCHAR, DOUBLE)"
        case inspect.DictType():
            return "JSON"
        case inspect.IntType():
            return "BIGINT"
        case inspect.FloatType():
            return "DOUBLE"
        case inspect.BoolType():
            return "BOOLEAN"
        case _:
            return "VARCHAR"
