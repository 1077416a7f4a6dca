"""The clean room: a verifier in it sees its code and what it is asked, and nothing else of the machine."""

import os
import socket
import threading
from pathlib import Path

import pytest

from recipe.agent_contracts.errors import GuaranteeUnavailable, VerifierFailure
from recipe.agent_contracts.verification.boxes.choose import BACKENDS, probe
from recipe.agent_contracts.verification.boxes.guarantee import Guarantee
from recipe.agent_contracts.verification.clean_room import CleanRoom, open_room
from recipe.agent_contracts.verification.process import VerifierPool, VerifierProcess

USABLE = [backend for backend in BACKENDS if probe(backend).held]


def room_of(backend):
    box = backend()
    box.guarantees = probe(backend).held
    return CleanRoom(box)


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(os.path.dirname(__file__))


@pytest.mark.parametrize("backend", USABLE, ids=lambda backend: backend.name)
def test_a_verifier_reaches_nothing_that_its_box_excludes(backend, tmp_path, monkeypatch):
    monkeypatch.setenv("A_SECRET_OF_THE_CALLER", "1")
    (tmp_path / "secret").write_text("secret")
    room = room_of(backend)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        grader = {"file": str(tmp_path / "secret"), "port": listener.getsockname()[1], "pid": os.getpid()}
        process = VerifierProcess("boxed_verifiers:Curious", 30.0, room)
        verdict = process.verify(grader, b"{}")
        process.close()
    (Path(__file__).parent / "planted").unlink(missing_ok=True)
    reached = {name for name, value in verdict.score.extra.items() if value}
    excluded = {
        Guarantee.ENV_CLEAN: {"environment"},
        Guarantee.FS_CONFINED: {"file", "written"},
        Guarantee.NO_NETWORK: {"network"},
        Guarantee.PIDS_HIDDEN: {"caller"},
    }
    for guarantee, names in excluded.items():
        if guarantee in room.guarantees:
            assert not reached & names, guarantee
    assert (verdict.backend, verdict.guarantees) == (backend.name, sorted(room.guarantees))
    if backend.name == "canonical":
        assert "file" in reached, "the probe of this test works: without a box the file is read"


def test_the_shipped_verifier_runs_on_every_backend_that_works_here():
    for backend in USABLE:
        process = VerifierProcess(
            "recipe.agent_contracts.verification.terminal:TerminalVerifier", 30.0, room_of(backend)
        )
        with pytest.raises(VerifierFailure, match="terminal verifier cannot read its input"):
            process.score({}, b"{}")
        process.close()


def test_a_guarantee_that_no_backend_gives_is_refused_before_anything_runs():
    with pytest.raises(GuaranteeUnavailable, match="inode_quota"):
        open_room(frozenset({Guarantee.INODE_QUOTA}))


def test_a_verifier_cannot_be_asked_to_hide_its_own_tests_from_itself():
    with pytest.raises(GuaranteeUnavailable, match="not agent_code, tests_hidden"):
        open_room(frozenset({Guarantee.TESTS_HIDDEN}))


def test_clients_of_a_pool_get_their_own_verdicts():
    pool = VerifierPool("boxed_verifiers:Patient", 30.0, num_processes=2)
    wrong = []

    def ask(number):
        for round_ in range(10):
            name = f"{number}-{round_}"
            if pool.score({"name": name}, name.encode()).task_success != 1.0:
                wrong.append(name)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pool.close()
    assert wrong == []
