"""What an action changed, read from two exported states."""

import json

from hypothesis import given
from hypothesis import strategies as st

from recipe.agent_contracts.transition.state_diff import state_diff


def diff(before, after):
    return state_diff(json.dumps(before).encode(), json.dumps(after).encode())


def test_each_change_is_one_line_named_by_its_pointer():
    before = {"files": {"a/b.txt": "x", "gone": "y"}, "declared": None, "n": 1}
    after = {"files": {"a/b.txt": "z", "new": "é"}, "declared": "finish", "n": 1}
    assert diff(before, after) == [
        '~ /declared: null -> "finish"',
        '~ /files/a~1b.txt: "x" -> "z"',
        '- /files/gone = "y"',
        '+ /files/new = "é"',
    ]


def test_a_text_of_several_lines_is_compared_line_by_line():
    lines = diff({"f": "one\ntwo\nthree"}, {"f": "one\n2\nthree"})
    assert lines[0] == "~ /f"
    assert "    -two" in lines
    assert "    +2" in lines


def test_values_that_python_takes_for_equal_differ():
    assert diff({"a": 1, "b": {}}, {"a": True, "b": []}) == ["~ /a: 1 -> true", "~ /b: {} -> []"]


def test_an_empty_key_is_not_the_whole_state():
    assert diff(None, {"": None}) == ["-  = null", "+ / = null"]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(values, values)
def test_no_line_means_no_difference(before, after):
    assert (diff(before, after) == []) == (json.dumps(before, sort_keys=True) == json.dumps(after, sort_keys=True))
