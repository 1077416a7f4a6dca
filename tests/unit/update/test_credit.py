"""Advantages against worked numbers; what cannot be credited is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.update.credit import ESTIMATORS, GIGPO_DISCOUNT, Episode, TurnSpan, credit, leave_one_out


def episode(name, value, *turns, group="g"):
    return Episode(name, group, value, [TurnSpan(anchor, size) for anchor, size in turns or [("s", 2)]])


def firsts(vectors):
    return [vector[0] for vector in vectors]


def test_rloo_subtracts_the_mean_of_the_others():
    """Returns 1, 0, 0.5: 1 - 0.25, 0 - 0.75, 0.5 - 0.5."""
    group = [episode("a", 1.0), episode("b", 0.0), episode("c", 0.5)]
    assert firsts(credit("rloo", "none", group)) == pytest.approx([0.75, -0.75, 0.0])


def test_grpo_with_scale_divides_by_the_sample_standard_deviation():
    """Returns 1, 0: mean 0.5, std (ddof 1) = 0.70711; 0.5 / 0.70711 = 0.70711 (epsilon 1e-6)."""
    group = [episode("a", 1.0), episode("b", 0.0)]
    assert firsts(credit("grpo", "std", group)) == pytest.approx([0.70711, -0.70711], abs=1e-5)
    assert firsts(credit("dr_grpo", "none", group)) == [0.5, -0.5]


def test_groups_do_not_mix_and_order_does_not_matter():
    mixed = [episode("a", 1.0), episode("x", 9.0, group="h"), episode("b", 0.0), episode("y", 5.0, group="h")]
    assert firsts(credit("rloo", "none", mixed)) == [1.0, 4.0, -1.0, -4.0]


def test_gigpo_adds_what_a_step_gained_over_siblings_in_the_same_state():
    """Both start in s; a goes on in t alone. Episode: +-0.5. Step returns in s: 1 * 0.95 (one turn follows) and 0, so
    +-0.475; t has one turn and gives nothing."""
    group = [episode("a", 1.0, ("s", 2), ("t", 1)), episode("b", 0.0, ("s", 3))]
    first, second = credit("gigpo", "none", group)
    assert first == pytest.approx([0.5 + GIGPO_DISCOUNT / 2] * 2 + [0.5])
    assert second == pytest.approx([-0.5 - GIGPO_DISCOUNT / 2] * 3)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(
    ("group", "message"),
    [
        ([episode("a", 1.0)], "at least two siblings"),
        ([episode("a", 1.0), episode("b", float("nan"))], "a finite return"),
        ([episode("a", 1.0), episode("b", float("inf"))], "a finite return"),
        ([episode("a", 1.0), episode("b", 0.0, ("s", 0))], "action tokens"),
    ],
)
def test_what_cannot_be_credited_is_refused(estimator, group, message):
    with pytest.raises(ContractViolation, match=message):
        credit(estimator, "none", group)


returns = st.lists(st.floats(-10, 10), min_size=2, max_size=8)


@given(returns)
def test_rloo_sums_to_zero_and_ignores_a_shift(values):
    group = [episode(str(n), value) for n, value in enumerate(values)]
    advantages = np.array(firsts(credit("rloo", "none", group)))
    assert advantages.sum() == pytest.approx(0.0, abs=1e-9)
    assert leave_one_out(np.array(values) + 3.0) == pytest.approx(advantages, abs=1e-9)


@pytest.mark.parametrize(
    ("estimator", "scale"), [("rloo", "none"), ("grpo", "std"), ("dr_grpo", "none"), ("gigpo", "std")]
)
def test_a_group_of_equal_returns_gives_zero_and_never_nan(estimator, scale):
    group = [episode("a", 1.0, ("s", 2)), episode("b", 1.0, ("s", 2))]
    assert all((vector == 0.0).all() for vector in credit(estimator, scale, group))


def test_an_episode_in_several_rows_counts_its_reward_once():
    """Three rows of one episode are one `Episode`: 1.0 against -1.0, where stock verl 0.9.1 gives 0.5 and -0.75 for
    three rows of RLOO."""
    long, short = episode("a", 1.0, ("s", 2), ("t", 2), ("u", 2)), episode("b", 0.0)
    assert firsts(credit("rloo", "none", [long, short])) == [1.0, -1.0]
