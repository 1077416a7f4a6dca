"""The declared limit on what the model reads of an observation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.agent_contracts.transition.observations import ObservationCut, ObservationLimit


@pytest.mark.parametrize(
    ("keeps", "shown"),
    [
        ("start", "abc\n[truncated: 3 of 8 characters]"),
        ("end", "[truncated: 3 of 8 characters]\nfgh"),
    ],
)
def test_the_declared_side_is_kept_and_the_model_is_told(keeps, shown):
    assert ObservationLimit(3, keeps).cut("abcdefgh") == (shown, ObservationCut(3, keeps, 8))


@given(st.text(max_size=30), st.integers(1, 30), st.sampled_from(["start", "end"]))
def test_only_a_longer_observation_is_cut(raw, max_chars, keeps):
    shown, cut = ObservationLimit(max_chars, keeps).cut(raw)
    assert (cut is None) == (len(raw) <= max_chars) == (shown == raw)
    kept = raw[:max_chars] if keeps == "start" else raw[-max_chars:]
    assert kept in shown
