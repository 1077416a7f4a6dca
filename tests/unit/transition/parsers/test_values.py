"""Strict JSON, and values whose kind only the tool's schema knows."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.agent_contracts.transition.parsers.values import MAX_DEPTH, by_schema, strict_json


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)])
def test_deep_nesting_is_refused_and_not_a_crash(text):
    with pytest.raises(ValueError, match="nested too deeply"):
        strict_json(text)


def test_the_deepest_allowed_nesting_is_read():
    assert json.dumps(strict_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)) == "[" * MAX_DEPTH + "]" * MAX_DEPTH


@pytest.mark.parametrize("text", ['{"a": 1, "a": 1}', "NaN", "-Infinity", str(2**53 + 1), '"\\ud800"', "{", "", "01"])
def test_what_cannot_be_recorded_exactly_is_refused(text):
    with pytest.raises(ValueError):
        strict_json(text)


def test_escapes_of_whole_characters_are_read():
    assert strict_json(r'"\ud83d\ude00 \u00e9 \n"') == "😀 é \n"


json_values = st.recursive(
    st.none() | st.booleans() | st.text() | st.integers(-(2**53), 2**53),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
def test_strict_json_agrees_with_json_on_what_it_accepts(value):
    assert strict_json(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("declared", "text", "value"),
    [
        ({"type": "string"}, "3", "3"),
        ({"type": ["string", "null"]}, "null", "null"),
        ({}, "3", "3"),
        (None, "3", "3"),
        (True, "3", "3"),
        ({"type": "integer"}, "3", 3),
        ({"type": ["integer", "null"]}, "null", None),
        ({"type": "boolean"}, "true", True),
        ({"type": "object"}, '{"a": {"b": [1]}}', {"a": {"b": [1]}}),
    ],
)
def test_the_schema_says_whether_a_value_is_text_or_json(declared, text, value):
    schema = {"properties": {} if declared is None else {"p": declared}}
    assert by_schema(text, "p", schema) == value


@pytest.mark.parametrize("text", ["True", "three", "3 apples", "NaN", "1_000"])
def test_a_value_that_should_be_json_and_is_not_is_refused(text):
    with pytest.raises(ValueError):
        by_schema(text, "p", {"properties": {"p": {"type": "integer"}}})
