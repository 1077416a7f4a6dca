"""Admission of groups: only complete ones, replaced a bounded number of times."""

from types import SimpleNamespace

import pytest
from verl.trainer.ppo.v1 import replay_buffer as verl_buffer

from recipe.agent_contracts.errors import ContractViolation
from verl_ext.replay_buffer import TRAIN, ContractReplayBuffer


class FakeQueue:
    """TransferQueue's key-value calls on a dictionary: prompts `u<n>` and rows `u<n>_<session>_0`."""

    def __init__(self):
        self.items = {}

    def add(self, uid, status, num_rows):
        self.items[uid] = {"is_prompt": True, "status": status, "global_steps": 1}
        for session in range(num_rows):
            self.items[f"{uid}_{session}_0"] = {"status": "success"}

    def kv_list(self):
        return {TRAIN: dict(self.items)}

    def kv_clear(self, partition_id, keys):
        for key in keys:
            self.items.pop(key, None)


@pytest.fixture
def queue(monkeypatch):
    fake = FakeQueue()
    monkeypatch.setattr(verl_buffer, "tq", fake)
    return fake


def buffer(refill, bound=4):
    return ContractReplayBuffer(
        trainer_mode="sync",
        trainer_config={},
        max_off_policy_threshold=8,
        max_off_policy_strategy="drop",
        sampler_kwargs=SimpleNamespace(group_size=2, max_failed_groups_per_step=bound, poll_interval_seconds=0.001),
        refill_fn=refill,
    )


def test_complete_groups_are_admitted_whole(queue):
    queue.add("u1", "finished", 2)
    queue.add("u2", "finished", 2)
    batch, metrics = buffer(refill=None).sample(1, TRAIN, 2)
    assert sorted(batch.keys) == ["u1_0_0", "u1_1_0", "u2_0_0", "u2_1_0"]
    assert metrics["admission/groups_failed"] == 0


@pytest.mark.parametrize(("status", "num_rows"), [("failure", 1), ("failure", 0), ("finished", 1)])
def test_an_incomplete_group_is_discarded_whole_and_a_fresh_one_takes_its_place(queue, status, num_rows):
    """Case H04: stock verl trains the siblings that are left and pads the batch."""
    queue.add("u1", "finished", 2)
    queue.add("u2", status, num_rows)
    refilled = []

    def refill(count):
        refilled.append(count)
        queue.add("u3", "finished", 2)

    batch, metrics = buffer(refill).sample(1, TRAIN, 2)
    assert {key.split("_")[0] for key in batch.keys} == {"u1", "u3"}
    assert refilled == [1]
    assert metrics["admission/groups_failed"] == 1


def test_past_the_bound_the_run_stops_and_says_why(queue):
    queue.add("u0", "failure", 1)
    names = iter(range(1, 100))

    def refill(count):
        queue.add(f"u{next(names)}", "failure", 1)

    with pytest.raises(ContractViolation, match="at most 4 failed groups"):
        buffer(refill, bound=4).sample(1, TRAIN, 1)


def test_the_bound_counts_anew_in_every_step(queue):
    failing = buffer(refill=lambda count: queue.add("u9", "finished", 2), bound=1)
    for step in (1, 2):
        queue.items.clear()
        queue.add(f"f{step}", "failure", 0)
        _, metrics = failing.sample(step, TRAIN, 1)
        assert metrics["admission/groups_failed"] == 1
