"""Many clients, workers that are killed at random: every request ends in its score or a typed failure, nothing leaks.

A tenth of the nightly count runs for every change.
"""

import contextlib
import os
import random
import signal
import tempfile
import threading
import time

import psutil
import pytest

from recipe.agent_contracts.errors import VerifierFailure
from recipe.agent_contracts.verification.process import VerifierPool

CLIENTS, WORKERS, SCORINGS_PER_KILL = 8, 2, 100


class Killer(threading.Thread):
    """Kills a random process of a random worker's box, so often that a share of the scorings meets it."""

    def __init__(self, pool, progress, seed):
        super().__init__()
        self.pool, self.progress, self.random = pool, progress, random.Random(seed)
        self.kills = 0
        self.over = threading.Event()

    def run(self):
        while not self.over.wait(0.01):
            if len(self.progress) >= (self.kills + 1) * SCORINGS_PER_KILL:
                running = self.random.choice(self.pool.processes)._process
                self.kills += running is not None and self._kill(running.process.pid)

    def _kill(self, launcher):
        with contextlib.suppress(psutil.NoSuchProcess):
            victims = [launcher, *(child.pid for child in psutil.Process(launcher).children(recursive=True))]
            os.kill(self.random.choice(victims), signal.SIGKILL)
            return True
        return False


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def descendants():
    """Those alive. Where this process adopts orphans, it inherits zombies of killed boxes: no leak of ours."""
    alive = set()
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.status() != psutil.STATUS_ZOMBIE:
                alive.add(child.pid)
    return alive


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scorings", [1000, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_every_request_ends_and_nothing_leaks(scorings, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(os.path.dirname(__file__))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tmp_path.chmod(0o711)
    VerifierPool("boxed_verifiers:Patient", 60.0, 1).close()  # what a process opens once is not a leak
    before = descriptors(), descendants()
    pool = VerifierPool("boxed_verifiers:Patient", 60.0, WORKERS)
    scored, failed, wrong = [], [], []

    def ask(client):
        for number in range(scorings // CLIENTS):
            name = f"{client}-{number}"
            # Every other request has a state of another name, whose only right score is 0.
            right = float(number % 2 == 0)
            try:
                score = pool.score({"name": name if right else "another"}, name.encode()).task_success
                (scored if score == right else wrong).append(name)
            except VerifierFailure:
                failed.append(name)

    killer = Killer(pool, scored, seed=20261207)
    clients = [threading.Thread(target=ask, args=(client,)) for client in range(CLIENTS)]
    for thread in (killer, *clients):
        thread.start()
    for thread in clients:
        thread.join()
    killer.over.set()
    killer.join()
    pool.close()
    assert not wrong
    assert len(scored) + len(failed) == scorings // CLIENTS * CLIENTS
    assert killer.kills >= scorings // SCORINGS_PER_KILL // 2
    assert len(failed) <= killer.kills, "a kill costs one request at most"
    for _ in range(100):
        if descendants() == before[1]:
            break
        time.sleep(0.1)
    assert (descriptors(), descendants()) == before
    assert not list(tmp_path.glob("box-*"))
