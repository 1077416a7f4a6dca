"""Faults in a real run: a tool that raises, a tool that hangs, a verifier that dies. None becomes a reward of 0."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recipe.agent_contracts.transition.envs.terminal.dataset import train_rows
from recipe.agent_contracts.transition.trajectory import episodes
from tests.e2e import fault_kinds
from tests.e2e.conftest import GROUP_SIZE, TASKS_PER_BATCH, read_tail, run_limited, train_like

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def rows():
    made = train_rows(120, seed=5)
    return [{**row, "data_source": "faulty/train"} for row in made]


def kind(row) -> int | None:
    return fault_kinds.kind_of(row["extra_info"]["task_id"], row["extra_info"]["seed"])


@pytest.fixture(scope="module")
def faulty_run(smoke_run: Path, rows, logs: Path) -> Path:
    data = logs / "faulty.parquet"
    pq.write_table(pa.Table.from_pylist(rows), data)
    run = smoke_run.parent / f"{smoke_run.name}-faulty"
    command = [*train_like(smoke_run, run, data), "trainer.total_training_steps=1", "trainer.save_freq=-1"]
    command += ["contract.environment.tool_timeout_seconds=2.0", "contract.admission.max_censored_share=1.0"]
    log = logs / "faulty.log"
    print(f"\nlogs: {log} and {run}/train.log")
    code = run_limited(
        command,
        600,
        log,
        PYTHONPATH=os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
        VERL_USE_EXTERNAL_MODULES="verl_ext.plugin,faulty_domain",
    )
    assert code == 0, f"exit code {code}:\n{read_tail(log)}"
    return run


def test_each_fault_has_its_own_code_and_no_reward(faulty_run, rows):
    kinds = {row["extra_info"]["task_id"]: kind(row) for row in rows}
    expected = {fault_kinds.RAISES: "infra_abort", fault_kinds.HANGS: "tool_timeout"}
    seen = Counter()
    for turns in episodes(faulty_run):
        last, fault = turns[-1], kinds[turns[0].episode.task_id]
        if fault in expected and last.action_kind != "cut":
            seen[fault] += 1
            assert last.termination_reason == expected[fault]
            assert last.reward_components is None
            assert last.error
        elif fault == fault_kinds.VERIFIER_DIES and last.termination_reason.is_outcome:
            seen[fault] += 1
            assert last.reward_components is None
            assert "ended without a verdict" in last.error
    assert set(seen) == {fault_kinds.RAISES, fault_kinds.HANGS, fault_kinds.VERIFIER_DIES}


def test_the_step_trained_on_complete_groups_and_says_how_many_failed(faulty_run):
    last = [json.loads(line)["data"] for line in (faulty_run / "metrics.jsonl").read_text().splitlines()][-1]
    assert last["admission/groups_admitted"] == TASKS_PER_BATCH
    assert last["admission/groups_refused"] > 0
    assert last["admission/refused/censored"] > 0
    rewarded = Counter(
        turns[0].episode.group_id for turns in episodes(faulty_run) if turns[-1].reward_components is not None
    )
    assert sum(size == GROUP_SIZE for size in rewarded.values()) >= TASKS_PER_BATCH
