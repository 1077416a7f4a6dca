"""The verifier's own process: a verdict, or a typed failure; never a reward of 0 for a failure."""

import os
import time

import pytest

from recipe.agent_contracts.errors import VerifierFailure
from recipe.agent_contracts.verification.layers import LayeredVerifier, Verdict
from recipe.agent_contracts.verification.process import VerifierProcess
from recipe.agent_contracts.verification.verifier import Score

STATE = b'{"value":1}'


class Versioned:
    version = "test-v1"


class Right(Versioned):
    def score(self, grader, final_state):
        print("a verifier may print: it does not reach the pipe")
        return Score(task_success=float(final_state == grader["state"].encode()))


class Raises(Versioned):
    """Case H11: a verifier that fails outside the main thread, or anywhere else."""

    def score(self, grader, final_state):
        raise ValueError("signal only works in main thread")


class Hangs(Versioned):
    def score(self, grader, final_state):
        time.sleep(60)


class Dies(Versioned):
    def score(self, grader, final_state):
        os._exit(3)


class AnswersNonsense(Versioned):
    def score(self, grader, final_state):
        return {"reward": 1}


class AnswersNaN(Versioned):
    def score(self, grader, final_state):
        return Score(task_success=float("nan"))


class Boastful(LayeredVerifier[None]):
    def verify(self, grader, final_state):
        score = Score(task_success=1.0, extra={"depth": 2.0})
        return Verdict(score=score, verifier_version="boastful-v1", guarantees=["unbreakable"], backend="moon")


def process(verifier, timeout_seconds=20.0):
    return VerifierProcess(f"test_process:{verifier.__name__}", timeout_seconds)


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(os.path.dirname(__file__))


def test_right_and_wrong_states_get_their_scores():
    verifier = process(Right)
    assert verifier.score({"state": STATE.decode()}, STATE).task_success == 1.0
    assert verifier.score({"state": "another"}, STATE).task_success == 0.0
    verifier.close()


@pytest.mark.parametrize(
    ("verifier", "found"),
    [(Raises, "signal only works"), (Dies, "ended without a verdict"), (AnswersNonsense, "malformed score")],
)
def test_no_verdict_is_a_failure_with_its_reason_and_never_a_score(verifier, found):
    failing = process(verifier)
    with pytest.raises(VerifierFailure, match=found):
        failing.score({}, STATE)
    failing.close()


def test_a_score_that_is_not_a_number_is_a_failure():
    failing = process(AnswersNaN)
    with pytest.raises(VerifierFailure):
        failing.score({}, STATE)
    failing.close()


def test_a_verifier_that_hangs_is_ended_at_its_limit():
    hanging = process(Hangs, timeout_seconds=2.0)
    started = time.monotonic()
    with pytest.raises(VerifierFailure, match=r"no verdict within 2\.0 s"):
        hanging.score({}, STATE)
    assert time.monotonic() - started < 15
    assert hanging._process is None


def test_after_a_failure_a_fresh_process_serves_the_next_request():
    dying = process(Dies)
    with pytest.raises(VerifierFailure):
        dying.score({}, STATE)
    dying.verifier = "test_process:Right"
    assert dying.score({"state": STATE.decode()}, STATE).task_success == 1.0
    dying.close()


def test_a_verifier_that_does_not_exist_is_a_failure():
    with pytest.raises(VerifierFailure):
        VerifierProcess("no.such.module:Verifier", 20.0).score({}, STATE)


def test_a_verdict_says_where_it_was_given_whatever_the_verifier_claims():
    boastful = process(Boastful)
    verdict = boastful.verify({}, STATE)
    assert (verdict.backend, verdict.guarantees) == (boastful.room.box.name, sorted(boastful.room.guarantees))
    assert "agent_code" not in verdict.guarantees
    assert (verdict.verifier_version, verdict.score.extra) == ("boastful-v1", {"depth": 2.0})
    boastful.close()
