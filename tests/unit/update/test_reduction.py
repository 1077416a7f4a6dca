"""Token weights: worked numbers, and independence of padding and of how a batch is split."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from verl.trainer.ppo.core_algos import agg_loss

from recipe.agent_contracts.update.reduction import (
    VERL_MODES,
    token_weights,
    turn_factors,
    turn_ids,
    turn_lengths,
    turn_means,
    turn_sums,
)

MASK = torch.tensor([[1, 1, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0]])
"""Two turns of 2 and 1 tokens; one turn of 1."""


def test_weights_are_those_of_the_definitions():
    expected = {
        "episode_sum": [1 / 2, 1 / 2, 1 / 2, 1 / 2],
        "length_normalized": [1 / 6, 1 / 6, 1 / 6, 1 / 2],
        "token_mean": [1 / 4, 1 / 4, 1 / 4, 1 / 4],
        # n = 3, K = 2: 3 / (2 * 2 * 2) in the first turn, 3 / (2 * 2 * 1) in the second.
        "turn_mass_conserving": [3 / 8, 3 / 8, 3 / 4, 1 / 2],
    }
    for reduction, weights in expected.items():
        assert token_weights(reduction, MASK)[MASK.bool()].tolist() == pytest.approx(weights)
        assert token_weights(reduction, MASK)[~MASK.bool()].abs().sum() == 0


def test_an_unknown_reduction_is_refused():
    with pytest.raises(ValueError, match="no reduction 'mean'"):
        token_weights("mean", MASK)


def test_turns_are_runs_of_action_tokens():
    assert turn_ids(MASK).tolist() == [[0, 0, -1, 1, -1, -1], [0, -1, -1, -1, -1, -1]]
    assert turn_lengths(MASK).tolist() == [[2, 2, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0]]
    assert turn_sums(torch.arange(12.0).view(2, 6), MASK).tolist() == [[1, 1, 0, 3, 0, 0], [6, 0, 0, 0, 0, 0]]
    assert turn_means(torch.arange(12.0).view(2, 6), MASK).tolist() == [[0.5, 0.5, 0, 3, 0, 0], [6, 0, 0, 0, 0, 0]]


rows = st.lists(st.lists(st.booleans(), min_size=1, max_size=9).filter(any), min_size=1, max_size=6)


def padded(masks, width=None):
    width = width or max(map(len, masks))
    return torch.tensor([[float(bit) for bit in mask] + [0.0] * (width - len(mask)) for mask in masks])


@given(rows)
def test_turn_mass_keeps_each_episodes_mass_and_makes_its_turns_equal(masks):
    mask = padded(masks)
    weights, ids = token_weights("turn_mass_conserving", mask), turn_ids(mask)
    assert torch.allclose(weights.sum(dim=1), token_weights("episode_sum", mask).sum(dim=1))
    for row, turns in zip(weights, ids, strict=True):
        masses = [row[turns == turn].sum().item() for turn in range(int(turns.max()) + 1)]
        assert masses == pytest.approx([masses[0]] * len(masses))


@pytest.mark.parametrize("reduction", VERL_MODES)
@given(masks=rows, extra=st.integers(0, 4))
def test_padding_changes_nothing(reduction, masks, extra):
    width = max(map(len, masks))
    weights = token_weights(reduction, padded(masks, width + extra))
    assert torch.equal(weights[:, :width], token_weights(reduction, padded(masks)))
    assert weights[:, width:].abs().sum() == 0


@pytest.mark.parametrize("reduction", VERL_MODES)
@given(masks=rows, cut=st.integers(0, 6), ranks=st.sampled_from([1, 2]))
def test_verls_reduction_of_micro_batches_on_ranks_adds_up_to_our_weights(reduction, masks, cut, ranks):
    """verl's part of each micro-batch (FSDP averages over ranks), given the whole batch's sizes, against one sum."""
    mask = padded(masks).double()
    losses = torch.randn(mask.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = (losses * token_weights(reduction, mask)).sum()
    given = losses * turn_factors(mask) if reduction == "turn_mass_conserving" else losses
    total = sum(
        agg_loss(
            given[part],
            mask[part],
            VERL_MODES[reduction],
            dp_size=ranks,
            batch_num_tokens=int(mask.sum()),
            global_batch_size=len(mask),
        )
        for part in (slice(0, cut), slice(cut, None))
        if len(mask[part])
    )
    assert (total / ranks).item() == pytest.approx(expected.item(), rel=1e-6, abs=1e-9)
