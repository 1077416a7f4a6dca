"""TF-IDF cosines against numbers worked by hand."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.agent_contracts.evaluation.firewall.tfidf import cosines

WORDS = st.sampled_from(["red", "green", "blue", "black", "white"])
TEXTS = st.lists(st.lists(WORDS, min_size=1).map(" ".join), min_size=1, max_size=5)


def test_a_worked_cosine():
    # Three texts: "a" is in all (weight 1), "b" in two, "c" in one.
    b, c = math.log(4 / 3) + 1, math.log(4 / 2) + 1
    (row,) = cosines(["a a b", "a c"], ["b a"])
    assert row[0] == pytest.approx((2 + b * b) / (math.hypot(2, b) * math.hypot(1, b)))
    assert row[1] == pytest.approx(1 / (math.hypot(1, c) * math.hypot(1, b)))


def test_order_does_not_matter_and_nothing_shared_is_0():
    (row,) = cosines(["one two three", "four five"], ["three one two"])
    assert row == pytest.approx([1.0, 0.0])


def test_a_text_without_words_is_like_nothing():
    (row,) = cosines(["one", "..."], ["!"])
    assert list(row) == [0.0, 0.0]


def test_more_texts_than_fit_one_block_come_in_order():
    heldout = [f"word{index}" for index in range(600)]
    rows = list(cosines(["word3", "word400"], heldout))
    assert len(rows) == 600
    assert [int(np.argmax([row[side] for row in rows])) for side in (0, 1)] == [3, 400]


@settings(max_examples=50, deadline=None)
@given(TEXTS, TEXTS)
def test_cosines_are_between_0_and_1_and_1_for_a_text_of_both_files(train, heldout):
    rows = np.array(list(cosines(train, [*heldout, train[0]])))
    assert rows.shape == (len(heldout) + 1, len(train))
    assert (rows >= 0).all() and (rows <= 1 + 1e-9).all()
    assert rows[-1, 0] == pytest.approx(1)
