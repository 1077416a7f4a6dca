"""Odd JSON is refused, and everything else is what Python's own decoder says."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.agent_contracts.verification.strict_json import MAX_DEPTH, decode, same

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(values, st.booleans())
def test_strict_json_is_read_as_it_was_written(value, ascii_only):
    assert same(decode(json.dumps(value, ensure_ascii=ascii_only).encode()), value)


@given(values, values)
def test_same_is_equality_of_the_written_form(left, right):
    def written(value):
        return json.dumps(value, sort_keys=True).replace("-0.0", "0.0")

    assert same(left, right) == (written(left) == written(right))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"reward": 0, "reward": 1}', "twice"),
        (b'{"a": {"b": 0, "b": 0}}', "twice"),
        (b'{"reward": NaN}', "NaN"),
        (b"[-Infinity]", "Infinity"),
        (b"1e999", "out of range"),
        (b"1" * 4301, "digits"),
        (b"0." + b"1" * 4300, "digits"),
        (b'"' + b'\\"' * 500_000, "Unterminated"),  # hours for a scan that starts again at each quote
        (b"[" * 100_000, "nested"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "nested"),
        (b'{"a":' * 100_000, "nested"),
        (b'"\\ud800"', "surrogates"),
        (b'{"\\udfff": 1}', "surrogates"),
        (b"\xed\xa0\x80", "utf-8"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b"{} {}", "Extra data"),
        (b"", "Expecting value"),
        (b"'a'", "Expecting value"),
        (b'"a\nb"', "control character"),
        (b"0" * (1 << 21), "bytes"),
    ],
)
def test_odd_json_is_refused_and_never_repaired(data, reason):
    with pytest.raises(ValueError, match=reason):
        decode(data)


def test_depth_is_counted_outside_strings_only():
    assert decode(b'["' + b"[" * 1000 + b'"]') == ["[" * 1000]
    assert decode(b'["\\"' + b"{" * 1000 + b'"]') == ['"' + "{" * 1000]
    deepest = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert json.dumps(decode(deepest)).encode() == deepest


@pytest.mark.parametrize(("left", "right"), [(True, 1), (1, 1.0), (0, False), ("1", 1), (None, False), ([1], [True])])
def test_values_of_another_type_are_not_the_same(left, right):
    assert not same(left, right)
    assert not same({"a": left}, {"a": right})
