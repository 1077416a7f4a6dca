"""Each verifier on each kind of flaw: where it errs is decided by what it can see."""

import msgspec
import pytest

from recipe.agent_contracts.evaluation.horizon.design import Cell, Corruption, Design, Work
from recipe.agent_contracts.evaluation.horizon.playing import play
from recipe.agent_contracts.evaluation.horizon.script import Flaw, draw
from recipe.agent_contracts.evaluation.horizon.verifiers import (
    HybridVerifier,
    Judgement,
    SamplingStandIn,
    SemanticStandIn,
)

DESIGN = Design()


def scripted(corruption, flaw=None, other_spelling=False, horizon=8):
    """An episode whose middle item is as told, and whose other items are right."""
    clean = Design(slip_rate=0.0, yield_rate=0.0, hack_rate=0.0)
    script = draw(clean, Cell(Work.GROWS, horizon, corruption), 0)
    items = list(script.items)
    middle = len(items) // 2
    items[middle] = msgspec.structs.replace(items[middle], flaw=flaw, other_spelling=other_spelling)
    return msgspec.structs.replace(script, items=tuple(items))


CASES = [
    # corruption, flaw, state accepts, semantic accepts
    *((corruption, None, True, True) for corruption in Corruption),
    (Corruption.CONFLICTING_DOCUMENTS, Flaw.GAVE_IN, False, True),
    (Corruption.STALE_STATE, Flaw.GAVE_IN, False, True),
    (Corruption.WRONG_PATH_ARTIFACT, Flaw.GAVE_IN, False, True),
    (Corruption.SEMANTIC_LURE, Flaw.GAVE_IN, False, True),
    (Corruption.NONE, Flaw.SLIP, False, False),
    (Corruption.NONE, Flaw.FALSE_CLAIM, False, True),
    (Corruption.NONE, Flaw.LEAKED_KEY, True, False),
]


@pytest.mark.parametrize(("corruption", "flaw", "state", "semantic"), CASES)
def test_what_each_verifier_makes_of_each_flaw(corruption, flaw, state, semantic, state_verifier, renderer):
    evidence = play(scripted(corruption, flaw), DESIGN, renderer)
    judge = SemanticStandIn(misread_rate=0.0)
    assert state_verifier.judge(evidence).accepted is state
    assert judge.judge(evidence).accepted is semantic
    assert HybridVerifier(state_verifier, judge).judge(evidence).accepted is (state and semantic)


def test_the_other_spelling_is_right_and_the_state_verifier_does_not_know(state_verifier, renderer):
    script = scripted(Corruption.AMBIGUOUS_RUBRIC, other_spelling=True)
    evidence = play(script, DESIGN, renderer)
    assert script.is_right
    assert not state_verifier.judge(evidence).accepted
    assert SemanticStandIn(misread_rate=0.0).judge(evidence).accepted


def test_the_semantic_stand_in_wants_the_work_to_be_claimed(renderer):
    evidence = play(scripted(Corruption.NONE), DESIGN, renderer)
    silent = msgspec.structs.replace(evidence.turns[-1], text="")
    without = msgspec.structs.replace(evidence, turns=(*evidence.turns[:-1], silent))
    assert not SemanticStandIn(misread_rate=0.0).judge(without).accepted


def test_false_negatives_of_misreading_follow_the_number_of_turns_read(renderer):
    """P(no turn of 8 misread) at .1 is .9**8 = .43; the standard error over 400 is .025."""
    evidence = play(scripted(Corruption.NONE), DESIGN, renderer)
    judge, several = SemanticStandIn(misread_rate=0.1), range(400)
    accepted = [judge.judge(msgspec.structs.replace(evidence, episode_id=str(i))).accepted for i in several]
    assert sum(accepted) / 400 == pytest.approx(0.43, abs=0.1)


def test_the_sampling_stand_in_sees_a_flaw_as_often_as_it_checks_its_turn(renderer):
    """One flawed turn of 16, 6 checked: missed in 10/16 = .625; the standard error over 400 is .024."""
    evidence = play(scripted(Corruption.NONE, Flaw.SLIP, horizon=16), DESIGN, renderer)
    judge, several = SamplingStandIn(misread_rate=0.0, num_turns=6), range(400)
    judged = [judge.judge(msgspec.structs.replace(evidence, episode_id=str(i))) for i in several]
    assert sum(judgement.accepted for judgement in judged) / 400 == pytest.approx(0.625, abs=0.1)
    # 6 turns checked and half of the other 10 on trust.
    assert {judgement.probability for judgement in judged} == {0.0, 11 / 16}


def test_a_sample_of_all_turns_is_the_whole_transcript(renderer):
    for flaw in (None, Flaw.SLIP, Flaw.LEAKED_KEY, Flaw.FALSE_CLAIM):
        evidence = play(scripted(Corruption.NONE, flaw), DESIGN, renderer)
        whole, sampled = SemanticStandIn(0.0).judge(evidence), SamplingStandIn(0.0, num_turns=99).judge(evidence)
        assert sampled.accepted == whole.accepted
        assert sampled.probability == float(whole.accepted)


def test_the_judge_of_a_hybrid_is_not_asked_when_the_gate_did_not_pass():
    class Gate:
        def judge(self, evidence):
            return Judgement(False)

    class Judge:
        def judge(self, evidence):
            raise AssertionError("asked")

    assert not HybridVerifier(Gate(), Judge()).judge(None).accepted
