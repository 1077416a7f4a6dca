"""Layers: in order, each recorded, and a later one never grants what an earlier one refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.agent_contracts.verification.layers import LayerKind, LayerResult, Verdict, assemble, verdict_of
from recipe.agent_contracts.verification.terminal import TerminalVerifier
from recipe.agent_contracts.verification.verifier import Score

GATES = [kind for kind in LayerKind if kind.is_hard_gate]


def layer(kind, passed=True, name=None, **figures):
    return LayerResult(layer=name or kind, kind=kind, passed=passed, figures=figures)


def terminal_verdict(files, declared="finish"):
    grader = {
        "task_id": "t",
        "expected": {"a.ini": "x=1"},
        "untouched": {"b.ini": "y=2"},
        "invariants": ["b.ini"],
        "must_finish": True,
    }
    state = {"declared": declared, "files": files, "tool_calls": 4}
    return verdict_of(TerminalVerifier(), grader, json.dumps(state).encode())


def test_a_verdict_names_each_layer_and_why_it_did_not_pass():
    verdict = terminal_verdict({"a.ini": "x=2", "b.ini": "z"}, declared=None)
    assert [(found.layer, found.kind, found.passed) for found in verdict.layers] == [
        ("final_files", LayerKind.STATE_CHECK, False),
        ("untouched_files", LayerKind.RULES, False),
    ]
    assert verdict.layers[0].detail == "not as expected: a.ini; declared None, not finish"
    assert verdict.layers[1].detail == "changed: b.ini"
    assert verdict.verifier_version == "terminal-verifier-v1"


def test_rules_count_and_do_not_take_success_away():
    verdict = terminal_verdict({"a.ini": "x=1", "b.ini": "z"})
    assert verdict.score == Score(task_success=1.0, policy_violation=1.0, collateral_damage=1.0, tool_calls=4.0)
    assert verdict.passed_hard_gates


@given(st.lists(st.tuples(st.sampled_from(GATES), st.booleans()), min_size=1, max_size=4), st.booleans())
def test_success_is_every_hard_gate_and_nothing_else(gates, rules_pass):
    results = [layer(kind, passed, name=str(index)) for index, (kind, passed) in enumerate(gates)]
    verdict = assemble([*results, layer(LayerKind.RULES, rules_pass)], "v")
    assert verdict.score.task_success == float(all(passed for _, passed in gates))
    assert verdict.passed_hard_gates is all(passed for _, passed in gates)


@pytest.mark.parametrize(
    ("results", "why"),
    [
        ([], "hard gates that decide"),
        ([layer(LayerKind.RULES)], "hard gates that decide"),
        ([layer(LayerKind.COMPILER, None)], "hard gates that decide"),
        ([layer(LayerKind.RULES), layer(LayerKind.COMPILER)], "hard gates come first"),
        ([layer(LayerKind.COMPILER), layer(LayerKind.JUDGE), layer(LayerKind.RULES)], "hard gates come first"),
        ([layer(LayerKind.COMPILER, task_success=1.0)], "not its to give"),
        ([layer(LayerKind.COMPILER, warnings=1.0), layer(LayerKind.RULES, warnings=0.0)], "not its to give"),
    ],
)
def test_a_verifier_with_layers_out_of_place_is_refused(results, why):
    with pytest.raises(AssertionError, match=why):
        assemble(results, "v")


def test_what_a_layer_measures_besides_the_vector_is_an_extra():
    verdict = assemble([layer(LayerKind.COMPILER, warnings=3.0, tool_calls=2.0)], "v")
    assert verdict.score == Score(task_success=1.0, tool_calls=2.0, extra={"warnings": 3.0})
    assert verdict.score.vector()["extra.warnings"] == 3.0
    assert "extra" not in verdict.score.vector()


@pytest.mark.parametrize("name", ["task_success", "policy_violation", "warnings"])
def test_a_later_layer_cannot_replace_what_is_there(name):
    verdict = assemble([layer(LayerKind.COMPILER, False, warnings=3.0)], "v")
    with pytest.raises(ValueError, match=f"would replace \\['{name}'\\]"):
        verdict.with_layer(layer(LayerKind.JUDGE, **{name: 1.0}))


def test_a_later_layer_that_passes_does_not_open_the_gate():
    verdict = assemble([layer(LayerKind.COMPILER, False)], "v").with_layer(layer(LayerKind.JUDGE, True, judge=1.0))
    assert verdict.score == Score(task_success=0.0, extra={"judge": 1.0})
    assert not verdict.passed_hard_gates


def test_a_verifier_without_layers_gives_its_score_alone():
    class Plain:
        version = "plain-v1"

        def score(self, grader, final_state):
            return Score(task_success=1.0)

    assert verdict_of(Plain(), {}, b"") == Verdict(score=Score(1.0), verifier_version="plain-v1")
