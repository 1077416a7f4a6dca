"""Metrics over attempts: steps that were done again count once, as they lasted."""

import json
import math

import pytest

from recipe.agent_contracts.errors import RecordCorrupt
from recipe.agent_contracts.evaluation.logged import read_metrics


def log(run, name, steps, **values):
    values = {"training/global_step": 0.0, **values}
    lines = [json.dumps({"step": step, "data": {"attempt": int(name or 0), **values}}) for step in steps]
    (run / f"metrics{'.' * bool(name)}{name}.jsonl").write_text("\n".join(lines) + "\n")


def lasting(run):
    return {entry.step: entry.values["attempt"] for entry in read_metrics(run)}


def test_a_resumed_attempt_replaces_the_steps_from_its_first_on(tmp_path):
    log(tmp_path, "", [0, 1, 2, 3, 4])
    log(tmp_path, "1", [3])  # resumed from step 2 and killed after step 3: the first attempt's step 4 did not last
    assert lasting(tmp_path) == {0: 0, 1: 0, 2: 0, 3: 1}


def test_the_evaluation_that_a_resumed_attempt_begins_with_keeps_what_its_checkpoint_was_trained_with(tmp_path):
    log(tmp_path, "", [0, 1, 2, 3])
    evaluation = {"step": 2, "data": {"attempt": 1, "val": 0.5}}
    (tmp_path / "metrics.1.jsonl").write_text(json.dumps(evaluation) + "\n")
    entries = read_metrics(tmp_path)
    assert [entry.step for entry in entries] == [0, 1, 2]  # step 3 was undone when the run went back to step 2
    assert entries[-1].values == {"training/global_step": 0.0, "attempt": 1, "val": 0.5}


def test_attempts_are_in_the_order_of_their_numbers(tmp_path):
    for number in range(12):
        log(tmp_path, str(number or ""), [number])
    assert lasting(tmp_path) == {number: number for number in range(12)}


def test_two_lines_of_one_step_are_joined(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step":3,"data":{"a":1.0}}\n{"step":3,"data":{"b":NaN}}\n')
    (entry,) = read_metrics(tmp_path)
    assert entry.values == {"a": 1.0, "b": pytest.approx(math.nan, nan_ok=True)}


def test_a_line_that_was_never_whole_is_left_out_and_a_broken_one_is_named(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step":1,"data":{"a":1.0}}\n{"step":2,"da')
    assert [entry.step for entry in read_metrics(tmp_path)] == [1]
    (tmp_path / "metrics.jsonl").write_text('{"step":1,"da\n{"step":2,"data":{"a":1.0}}\n')
    with pytest.raises(RecordCorrupt, match=r"metrics\.jsonl:1"):
        read_metrics(tmp_path)


def test_a_run_without_metrics_has_none(tmp_path):
    assert read_metrics(tmp_path) == []
