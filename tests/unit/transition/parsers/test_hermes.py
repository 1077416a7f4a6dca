"""The shipped default, hermes-strict-v1: one documented outcome for every shape of turn."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.agent_contracts.transition.actions import InvalidReason
from recipe.agent_contracts.transition.parsers.hermes import HermesParser
from tests.support import case

TOOLS = {
    "search": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
    "wipe": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    "finish": {"type": "object", "properties": {}, "additionalProperties": False},
    "abstain": {"type": "object", "properties": {}, "additionalProperties": False},
}


def call(name, **arguments):
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


def test_one_call_alone_is_that_action():
    action = HermesParser().parse(call("search", q="tide"), TOOLS)
    assert (action.kind, action.name, action.args) == ("tool", "search", {"q": "tide"})


@pytest.mark.parametrize("name", ["finish", "abstain"])
def test_finish_and_abstain_are_kinds_of_their_own(name):
    assert HermesParser().parse(call(name), TOOLS).kind == name


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        ("I am done.", InvalidReason.NO_CALL),
        ("", InvalidReason.NO_CALL),
        ("<tool_call>" + '{"name": "finish", "arguments": {}}', InvalidReason.NO_CALL),
        (call("finish") + call("finish"), InvalidReason.SEVERAL_CALLS),
        ("<tool_call>" + call("finish"), InvalidReason.SEVERAL_CALLS),
        ("Sure: " + call("finish"), InvalidReason.TEXT_AROUND_CALL),
        ("<think>hm" + call("finish"), InvalidReason.UNCLOSED_THINKING),
        ("<tool_call>{'name': 'finish'}</tool_call>", InvalidReason.BAD_JSON),
        ('<tool_call>{"name": "search", "arguments": {"q": NaN}}</tool_call>', InvalidReason.BAD_JSON),
        ('<tool_call>{"name": "search", "arguments": {"q": 1e400}}</tool_call>', InvalidReason.BAD_ARGUMENTS),
        ('<tool_call>{"name": "search", "name": "wipe", "arguments": {}}</tool_call>', InvalidReason.BAD_JSON),
        ('<tool_call>{"name": "search", "arguments": {"q": 99999999999999999999}}</tool_call>', InvalidReason.BAD_JSON),
        ("<tool_call>[1]</tool_call>", InvalidReason.BAD_SHAPE),
        ('<tool_call>{"name": "search", "args": {}}</tool_call>', InvalidReason.BAD_SHAPE),
        ('<tool_call>{"name": 3, "arguments": {}}</tool_call>', InvalidReason.BAD_SHAPE),
        (call("rm", path="/"), InvalidReason.UNKNOWN_TOOL),
        (call("search"), InvalidReason.BAD_ARGUMENTS),
        (call("search", q=3), InvalidReason.BAD_ARGUMENTS),
        (call("finish", really=True), InvalidReason.BAD_ARGUMENTS),
    ],
)
def test_every_other_turn_is_invalid_with_one_reason(turn, reason):
    action = HermesParser().parse(turn, TOOLS)
    assert (action.kind, action.invalid_reason) == ("invalid", reason)


def test_a_call_inside_thinking_text_is_ignored_and_counted():
    h14 = case("H14")
    action = HermesParser().parse(h14["input"]["turn"], TOOLS)
    assert {"name": action.name, "arguments": action.args} == h14["check"]["calls"][0]
    assert action.ignored_in_thinking == h14["check"]["ignored_in_thinking"]


@given(st.text(max_size=200))
def test_no_text_makes_the_parser_raise(text):
    action = HermesParser().parse(text, TOOLS)
    assert action.kind == "invalid"


@given(st.text(max_size=100))
def test_no_call_body_makes_the_parser_raise(body):
    HermesParser().parse(f"<tool_call>{body}</tool_call>", TOOLS)
