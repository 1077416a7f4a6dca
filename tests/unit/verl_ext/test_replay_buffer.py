"""Admission in verl's buffer: only what was leased and is whole, replaced a bounded number of times, entered once."""

from types import SimpleNamespace

import pytest
import torch
from verl.trainer.ppo.v1 import replay_buffer as verl_buffer

import verl_ext.replay_buffer as our_buffer
from recipe.agent_contracts.errors import ContractViolation, InvalidMeasurement, VerifierFailure
from recipe.agent_contracts.transition.termination import Termination
from recipe.agent_contracts.transition.trajectory import TrajectoryWriter
from recipe.agent_contracts.update.ledger import State
from recipe.agent_contracts.verification.quarantine import Entry, Quarantine, reason_of
from tests.records import turn_record
from tests.unit.update.leasing import lease
from verl_ext.replay_buffer import TRAIN, LeasedReplayBuffer


class Column(list):
    def tolist(self):
        return list(self)

    def unbind(self):
        return list(self)


class FakeQueue:
    """TransferQueue's key-value calls on a dictionary: prompts `u<n>` and rows `u<n>_<session>_0`."""

    def __init__(self, ledger):
        self.items, self.rows, self.ledger = {}, {}, ledger

    def add(self, uid, status, num_rows, step=1, deadline=1e12, **changes):
        """Lease a group, and have it end with some rows; `changes` are of its last row."""
        if self.ledger.group(uid) is None:
            self.ledger.lease([lease(uid, deadline=deadline)], step)
        self.items[uid] = {"is_prompt": True, "status": status, "global_steps": step}
        carried = lease(uid, deadline=deadline).encode()
        for session in range(num_rows):
            key = f"{uid}_{session}_0"
            self.items[key] = {"status": "success"}
            row = {
                "min_global_steps": 0,
                "max_global_steps": 0,
                "termination": "agent_finish",
                "reward_extra_info": {},
                "finished_at": 1.0,
                "mask": [1, 1, 0, 1],
                "log_probs": [-0.1, -0.2, 0.0, -0.3],
                "return": float(session),
                "lease": carried,
                **(changes if session == num_rows - 1 else {}),
            }
            self.rows[key] = row

    def kv_list(self):
        return {TRAIN: dict(self.items)}

    def kv_clear(self, partition_id, keys):
        for key in keys:
            self.items.pop(key, None)

    def kv_batch_get(self, keys, partition_id, select_fields):
        rows = [self.rows[key] for key in keys]
        columns = {
            "extra_fields": Column(rows),
            "response_mask": Column(torch.tensor(row["mask"]) for row in rows),
            "rollout_log_probs": Column(torch.tensor(row["log_probs"]) for row in rows),
            "rm_scores": Column(torch.tensor([0.0, row["return"]]) for row in rows),
            "lease": Column(row["lease"] for row in rows),
        }
        return {name: columns[name] for name in select_fields}


@pytest.fixture
def queue(monkeypatch, tmp_path):
    fake = FakeQueue(our_buffer.ledger_of(str(tmp_path)))
    monkeypatch.setattr(verl_buffer, "tq", fake)
    monkeypatch.setattr(our_buffer, "tq", fake)
    return fake


def buffer(queue, refill=None, bound=4, **admission):
    declared = {"max_censored_share": 1.0, "max_age_seconds": None, "zero_variance": "keep", **admission}
    return LeasedReplayBuffer(
        trainer_mode="sync",
        trainer_config={},
        max_off_policy_threshold=8,
        max_off_policy_strategy="drop",
        sampler_kwargs=SimpleNamespace(
            max_failed_groups_per_step=bound,
            poll_interval_seconds=0.001,
            max_version_lag=0,
            run_folder=str(queue.ledger.path.parent),
            admission=SimpleNamespace(**declared),
        ),
        refill_fn=refill,
    )


def test_whole_groups_are_admitted_and_entered(queue):
    queue.add("u1", "finished", 2)
    queue.add("u2", "finished", 2)
    batch, metrics = buffer(queue).sample(1, TRAIN, 2)
    assert sorted(batch.keys) == ["u1_0_0", "u1_1_0", "u2_0_0", "u2_1_0"]
    assert metrics["admission/groups_admitted"] == 2
    assert metrics["admission/groups_refused"] == 0
    assert queue.ledger.counts()[State.ADMITTED] == 2


@pytest.mark.parametrize(
    ("status", "num_rows", "changes", "reason"),
    [
        ("failure", 1, {}, "sibling_failed"),
        ("failure", 0, {}, "sibling_failed"),
        ("finished", 1, {}, "incomplete"),
        ("finished", 2, {"max_global_steps": 1}, "mixed_version"),
        ("finished", 2, {"min_global_steps": None}, "mixed_version"),
        ("finished", 2, {"log_probs": [-0.1]}, "misaligned"),
        ("finished", 2, {"log_probs": [-0.1, float("nan"), 0.0, -0.3]}, "misaligned"),
        ("finished", 2, {"mask": [0, 0, 0, 0]}, "misaligned"),
        ("finished", 2, {"termination": "scheduler_cancel"}, "censored"),
        ("finished", 2, {"lease": lease("u2", deadline=1e12, base_snapshot_id="other").encode()}, "other_lease"),
        ("finished", 2, {"lease": lease("u2", deadline=1e12, behavior_manifest_hash="other").encode()}, "other_lease"),
    ],
)
def test_one_bad_sibling_costs_its_group_and_a_fresh_one_takes_its_place(queue, status, num_rows, changes, reason):
    """Case H04: stock verl trains the siblings that are left and pads the batch."""
    queue.add("u1", "finished", 2)
    queue.add("u2", status, num_rows, **changes)
    refilled = []

    def refill(count):
        refilled.append(count)
        queue.add("u3", "finished", 2)

    batch, metrics = buffer(queue, refill).sample(1, TRAIN, 2)
    assert {key.split("_")[0] for key in batch.keys} == {"u1", "u3"}
    assert refilled == [1]
    assert metrics[f"admission/refused/{reason}"] == 1
    row = queue.ledger.group("u2")
    assert (row.state, row.reason) == (State.DISCARDED, reason)


def test_a_group_that_was_never_leased_stops_the_run(queue):
    queue.items["x"] = {"is_prompt": True, "status": "finished", "global_steps": 1}
    with pytest.raises(ContractViolation, match="a leased group, found x"):
        buffer(queue).sample(1, TRAIN, 1)


def test_a_group_past_its_deadline_is_replaced_and_stays_out_when_it_ends_after_all(queue):
    queue.add("slow", "running", 0, deadline=0.0)
    refilled = []

    def refill(count):
        refilled.append(count)
        queue.add("slow", "finished", 2)  # the straggler comes back while the fresh one runs
        queue.add("fresh", "finished", 2)

    batch, metrics = buffer(queue, refill).sample(1, TRAIN, 1)
    assert {key.split("_")[0] for key in batch.keys} == {"fresh"}
    assert refilled == [1]
    assert metrics["admission/refused/deadline"] == 1
    assert "slow" not in queue.items


def test_a_group_without_variance_is_kept_or_resampled_as_declared(queue):
    queue.add("same", "finished", 2, **{"return": 0.0})
    assert buffer(queue).sample(1, TRAIN, 1)[1]["admission/groups_refused"] == 0
    queue.items.clear()
    queue.add("again", "finished", 2, **{"return": 0.0})

    def refill(count):
        queue.add("other", "finished", 2)

    batch, metrics = buffer(queue, refill, zero_variance="resample").sample(1, TRAIN, 1)
    assert {key.split("_")[0] for key in batch.keys} == {"other"}
    assert metrics["admission/refused/zero_variance"] == 1


def test_past_the_bound_the_run_stops_and_says_why(queue):
    queue.add("u0", "failure", 1)
    names = iter(range(1, 100))

    def refill(count):
        queue.add(f"u{next(names)}", "failure", 1)

    with pytest.raises(ContractViolation, match="at most 4 failed groups"):
        buffer(queue, refill, bound=4).sample(1, TRAIN, 1)


def test_the_bound_counts_anew_in_every_step(queue):
    failing = buffer(queue, refill=lambda count: queue.add(f"n{len(queue.rows)}", "finished", 2), bound=1)
    for step in (1, 2):
        queue.items.clear()
        queue.add(f"f{step}", "failure", 0)
        _, metrics = failing.sample(1, TRAIN, 1)
        assert metrics["admission/groups_refused"] == 1


def test_what_a_lost_group_cost_and_why_is_read_from_its_records(queue):
    """The tags say "failure" only; the records say that a tool hung."""
    writer = TrajectoryWriter(queue.ledger.path.parent / "trajectories", "a")
    writer.append([turn_record("u1_0", termination_reason=Termination.TOOL_TIMEOUT)])
    writer.append(
        [turn_record("u1_1", termination_reason=Termination.AGENT_FINISH, reward_components={"task_success": 1.0})]
    )
    queue.add("u1", "failure", 0)
    _, metrics = buffer(queue, refill=lambda count: queue.add("u2", "finished", 2)).sample(1, TRAIN, 1)
    assert metrics["admission/refused/censored"] == 1
    assert metrics["admission/refused_tokens"] == 4
    row = queue.ledger.group("u1")
    assert (row.reason, row.num_tokens, row.mean_return) == ("censored", 4, 1.0)


@pytest.mark.parametrize(
    ("error", "reason"),
    [(InvalidMeasurement("a", "b", "c"), "tampered"), (VerifierFailure("a", "b", "c"), "sibling_failed")],
)
def test_a_group_with_an_episode_in_quarantine_is_quarantined(queue, error, reason):
    entry = Entry(
        at=1.0,
        trajectory_id="u1_0",
        group_id="u1",
        task_id="t",
        family="f",
        length="0-63",
        reason=reason_of(error),
        error=str(error),
        final_state_hash="sha256:f",
        reward=None,
    )
    Quarantine(queue.ledger.path.parent).add(entry)
    queue.add("u1", "failure", 0)
    queue.add("u3", "failure", 0)
    left = iter(["u2", "u4"])
    _, metrics = buffer(
        queue, refill=lambda count: [queue.add(next(left), "finished", 2) for _ in range(count)]
    ).sample(1, TRAIN, 1)
    assert metrics[f"admission/refused/{reason}"] >= 1
    assert (queue.ledger.group("u1").state, queue.ledger.group("u1").reason) == (State.QUARANTINED, reason)
    assert queue.ledger.group("u3").state is State.DISCARDED


def test_a_run_that_loses_too_many_groups_to_censoring_stops(queue):
    """19 whole groups and the 20th censored: 1 of 20 is the bound of 5%, a second one is past it."""
    writer = TrajectoryWriter(queue.ledger.path.parent / "trajectories", "a")
    queue.ledger.lease([lease(f"g{n}") for n in range(19)], 1)
    for name in ("c1", "c2"):
        writer.append([turn_record(f"{name}_0", termination_reason=Termination.INFRA_ABORT)])
    queue.add("c1", "failure", 0)
    strict = buffer(queue, refill=lambda count: queue.add("ok", "finished", 2), max_censored_share=0.05)
    strict.sample(1, TRAIN, 1)
    queue.add("c2", "failure", 0)
    with pytest.raises(ContractViolation, match=r"5\.0% of the run's groups lost to censored episodes, found 2 of 22"):
        strict.sample(2, TRAIN, 1)


def test_validation_needs_no_lease(queue):
    batch, metrics = {}, {}
    queue.items = {"v": {"is_prompt": True, "status": "finished", "global_steps": 1}, "v_0_0": {"status": "success"}}
    queue.kv_list = lambda: {"val": dict(queue.items)}
    batch, metrics = buffer(queue).sample(1, "val", 1)
    assert batch.keys == ["v_0_0"]
    assert "admission/groups_admitted" not in metrics
