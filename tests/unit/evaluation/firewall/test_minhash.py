"""MinHash: its estimates, which pairs become candidates, and how often a pair is missed."""

import itertools
import math
import random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.agent_contracts.evaluation.firewall.minhash import (
    candidates,
    jaccard,
    miss_probability,
    shingles,
    signatures,
    words,
)
from recipe.agent_contracts.evaluation.firewall.rules import RULES

NUM_HASHES = RULES.num_bands * RULES.rows_per_band
TEXTS = st.lists(st.sampled_from([f"word{index}" for index in range(30)]), min_size=1, max_size=25).map(" ".join)


def pair_of_sets(rng: random.Random, similarity: float, size: int = 60) -> tuple[frozenset[int], frozenset[int]]:
    """Two random sets of 64-bit numbers with about that Jaccard similarity."""
    members = [rng.getrandbits(64) for _ in range(size)]
    shared = round(similarity * size)
    cut = (size + shared) // 2
    return frozenset(members[:cut]), frozenset(members[cut - shared :])


def test_words_are_folded_and_punctuation_separates():
    assert words("Set Port to 80, in app.INI!") == ["set", "port", "to", "80", "in", "app", "ini"]


def test_a_worked_similarity():
    a, b = shingles("one two three four five", 3), shingles("one two three four six", 3)
    assert (len(a), len(b)) == (3, 3)
    assert jaccard(a, b) == pytest.approx(2 / 4)


@pytest.mark.parametrize("num_words", [6, 11, 20])
def test_one_word_changed_inside_a_text_leaves_what_the_rules_say(num_words):
    before = [f"w{index}" for index in range(num_words)]
    after = [*before[:3], "other", *before[4:]] if num_words > 6 else None
    if after is None:
        after = [*before[:2], "other", *before[3:]]
    similarity = jaccard(shingles(" ".join(before), 3), shingles(" ".join(after), 3))
    assert similarity == pytest.approx((num_words - 5) / (num_words + 1))
    assert (similarity >= RULES.max_jaccard) == (num_words >= 11)


def test_a_text_shorter_than_a_shingle_equals_only_itself():
    assert jaccard(shingles("go now", 3), shingles("Go now.", 3)) == 1
    assert jaccard(shingles("go now", 3), shingles("go", 3)) == 0


def test_estimates_scatter_around_the_exact_value_with_the_stated_standard_error():
    rng = random.Random(1)
    scores = []
    for similarity, _ in itertools.product((0.1, 0.3, 0.5, 0.7, 0.9), range(80)):
        a, b = pair_of_sets(rng, similarity)
        exact = jaccard(a, b)
        signed = signatures([a, b], msgspec.structs.replace(RULES, seed=rng.getrandbits(31)))
        scores.append(((signed[0] == signed[1]).mean() - exact) / math.sqrt(exact * (1 - exact) / NUM_HASHES))
    # 400 standardised errors: their mean is 0 within 0.05, their standard deviation 1 within 0.035; both at 4 sigma.
    assert abs(np.mean(scores)) < 0.2
    assert abs(np.std(scores) - 1) < 0.14


@settings(max_examples=50, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_a_text_that_is_in_both_files_is_always_a_candidate(texts):
    sets = [shingles(text, 3) for text in texts]
    found = candidates(signatures(sets, RULES), signatures(sets[::-1], RULES), RULES)
    assert {(index, len(sets) - 1 - index) for index in range(len(sets))} <= found


@settings(max_examples=50, deadline=None)
@given(TEXTS, TEXTS)
def test_similarity_is_symmetric_and_1_for_equal_sets_alone(a, b):
    left, right = shingles(a, 3), shingles(b, 3)
    assert jaccard(left, right) == jaccard(right, left)
    assert (jaccard(left, right) == 1) == (left == right)


def test_sets_without_a_common_member_are_no_candidates():
    rng = random.Random(2)
    sides = [[frozenset(rng.getrandbits(64) for _ in range(30)) for _ in range(40)] for _ in range(2)]
    assert candidates(signatures(sides[0], RULES), signatures(sides[1], RULES), RULES) == set()


def test_the_stated_probability_of_a_miss_is_what_happens():
    rules = msgspec.structs.replace(RULES, num_bands=6)
    rng, trials = random.Random(3), 600
    pairs = [pair_of_sets(rng, 0.5) for _ in range(trials)]
    train, heldout = (signatures([pair[side] for pair in pairs], rules) for side in (0, 1))
    found = candidates(train, heldout, rules)
    missed = sum((index, index) not in found for index in range(trials))
    expected = np.mean([miss_probability(jaccard(*pair), rules) for pair in pairs])
    assert expected == pytest.approx((1 - 0.5**3) ** 6, abs=0.02)
    assert abs(missed / trials - expected) < 4 * math.sqrt(expected * (1 - expected) / trials)


def test_the_shipped_rules_find_a_pair_at_the_bound():
    assert miss_probability(0.5, RULES) == pytest.approx((1 - 1 / 8) ** 84)
    assert miss_probability(0.5, RULES) < 2e-5
    assert miss_probability(0.1, RULES) == pytest.approx(0.919, abs=0.001)
