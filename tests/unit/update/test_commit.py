"""The commit protocol under kill -9: whatever the moment, what was trained is what is committed, exactly once."""

import json
import os
import random
import sqlite3

import pytest

from recipe.agent_contracts.errors import RecordCorrupt
from recipe.agent_contracts.update import commit, ledger
from recipe.agent_contracts.update.commit import COMMIT, commit_checkpoint, newest_committed, read_commit, recover
from recipe.agent_contracts.update.ledger import Ledger, Measured, State
from recipe.agent_contracts.update.record import recorded_steps
from tests.unit.update.leasing import lease
from tests.unit.update.test_record import record

STEPS, TASKS_PER_STEP, SAVE_EVERY = 4, 2, 2


def train(run, attempt):
    """A trainer whose weights are the list of groups they were trained on. Starts where the newest commit is."""
    book = Ledger(run)
    checkpoint = recover(run, book)
    weights = [] if checkpoint is None else json.loads((checkpoint / "weights.json").read_text())
    first = 1 + (0 if checkpoint is None else read_commit(checkpoint).step)
    for step in range(first, STEPS + 1):
        names = [f"{attempt}-{step}-{task}" for task in range(TASKS_PER_STEP)]
        book.lease([lease(name, task_id=f"task-{step}-{n}", size=2) for n, name in enumerate(names)], step)
        for name in names:
            book.complete(name, step, Measured(10, 0.5))
        book.admit(names, step)
        weights = weights + names
        record(step).write(run)
        book.apply(names, step, step)
        if step % SAVE_EVERY == 0:
            folder = run / "checkpoints" / f"global_step_{step}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "weights.json").write_text(json.dumps(weights))
            (run / "checkpoints" / "latest_checkpointed_iteration.txt").write_text(str(step))
            commit_checkpoint(folder, book, step)
    book.close()


class Countdown:
    """Ends the process, as kill -9 does, at the n-th call of what touches the disk."""

    def __init__(self, calls):
        self.left = calls

    def tick(self):
        self.left -= 1
        if self.left < 0:
            os._exit(9)

    def before(self, function):
        def call(*arguments, **keywords):
            self.tick()
            return function(*arguments, **keywords)

        return call


class TickingConnection(sqlite3.Connection):
    countdown: Countdown

    def execute(self, *arguments):
        self.countdown.tick()
        return super().execute(*arguments)


def killed_at(run, attempt, calls):
    """Train in a child process that is killed at its n-th disk operation. Returns whether it was."""
    child = os.fork()
    if child == 0:
        countdown = Countdown(calls)
        for name in ("fsync", "replace", "open"):
            setattr(os, name, countdown.before(getattr(os, name)))
        TickingConnection.countdown = countdown
        connect = sqlite3.connect
        ledger.sqlite3.connect = lambda *a, **k: connect(*a, factory=TickingConnection, **k)
        commit.shutil.rmtree = countdown.before(commit.shutil.rmtree)
        try:
            train(run, attempt)
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 9), "the trainer itself failed"
    return code == 9


def check(run):
    """Weights, ledger and records tell the same story."""
    book = Ledger(run)
    weights = json.loads((newest_committed(run / "checkpoints") / "weights.json").read_text())
    committed = {row.group_id: row for row in book.groups(State.COMMITTED)}
    assert sorted(weights) == sorted(committed)  # trained = committed
    assert len(weights) == len(set(weights))  # none twice
    tasks = sorted(row.lease.task_id for row in committed.values())
    assert tasks == sorted(f"task-{step}-{n}" for step in range(1, STEPS + 1) for n in range(TASKS_PER_STEP))
    counts = book.counts()
    assert (
        sum(counts[state] for state in (State.LEASED, State.COMPLETE, State.ADMITTED, State.APPLIED)) == 0
    )  # none lost
    assert recorded_steps(run) == list(range(1, STEPS + 1))
    book.close()


def crash_often(tmp_path, number, seed):
    chance = random.Random(seed)
    for case in range(number):
        run = tmp_path / str(case)
        run.mkdir()
        attempt = 0
        # The first attempt makes some 280 disk operations; later ones die sooner, then one is left alone.
        while attempt < 3 and killed_at(run, attempt, chance.randrange(300 if attempt == 0 else 120)):
            attempt += 1
        train(run, attempt + 1)
        check(run)


def test_a_trainer_that_is_killed_anywhere_trains_each_task_once(tmp_path):
    crash_often(tmp_path, 50, seed=1)


@pytest.mark.nightly
def test_a_trainer_that_is_killed_at_500_more_points_trains_each_task_once(tmp_path):
    crash_often(tmp_path, 500, seed=2)


def test_every_single_disk_operation_of_a_run_is_a_point_that_is_survived(tmp_path):
    point, step = 0, 7
    while True:
        run = tmp_path / str(point)
        run.mkdir()
        was_killed = killed_at(run, 0, point)
        train(run, 1)
        check(run)
        if not was_killed:
            break
        point += step
    assert point > 100, "the run makes more disk operations than that"


def test_a_folder_without_its_commit_is_no_checkpoint_whatever_the_tracker_says(tmp_path):
    train(tmp_path, 0)
    checkpoints = tmp_path / "checkpoints"
    (checkpoints / "global_step_4" / COMMIT).unlink()
    assert newest_committed(checkpoints).name == "global_step_2"
    assert (checkpoints / "latest_checkpointed_iteration.txt").read_text() == "4"


def test_what_came_after_the_commit_is_gone_before_it_is_done_again(tmp_path):
    train(tmp_path, 0)
    (tmp_path / "checkpoints" / "global_step_4" / COMMIT).unlink()
    book = Ledger(tmp_path)
    assert recover(tmp_path, book).name == "global_step_2"
    assert [path.name for path in (tmp_path / "checkpoints").glob("global_step_*")] == ["global_step_2"]
    assert recorded_steps(tmp_path) == [1, 2]


def test_steps_are_ordered_as_numbers(tmp_path):
    for step in (2, 10):
        folder = tmp_path / f"global_step_{step}"
        folder.mkdir()
        (folder / COMMIT).write_text("{}")
    assert newest_committed(tmp_path).name == "global_step_10"


def test_a_damaged_commit_or_ledger_copy_is_named(tmp_path):
    train(tmp_path, 0)
    folder = tmp_path / "checkpoints" / "global_step_4"
    copy = folder / "ledger.sqlite"
    copy.write_bytes(copy.read_bytes()[:-1] + b"x")
    with pytest.raises(RecordCorrupt, match=r"ledger\.sqlite"):
        read_commit(folder)
    (folder / COMMIT).write_text("{")
    with pytest.raises(RecordCorrupt, match=COMMIT):
        read_commit(folder)
