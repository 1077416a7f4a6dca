"""The declared experiment: its cells, and what it refuses."""

import pytest

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.evaluation.horizon.design import Cell, Corruption, Design, Work


def test_fewer_than_fifty_episodes_a_cell_are_refused():
    with pytest.raises(ContractViolation, match=r"at least 50 episodes a cell, found 49"):
        Design(episodes_per_cell=49)


@pytest.mark.parametrize("horizons", [(4, 8), (8, 4, 16), (4, 4, 8), (2, 4, 8), (4, 7, 8)])
def test_horizons_that_no_curvature_can_be_told_from_are_refused(horizons):
    with pytest.raises(ContractViolation, match="three or more even horizons"):
        Design(horizons=horizons)


def test_the_default_has_every_combination_once():
    cells = list(Design().cells())
    assert len(cells) == len(set(cells)) == 2 * 4 * 6


def test_items_padding_and_finish_make_up_the_horizon():
    assert [Cell(Work.GROWS, turns, Corruption.NONE).num_items for turns in (4, 8, 16, 32)] == [1, 3, 7, 15]
    for cell in Design().cells():
        assert 2 * cell.num_items + cell.num_padding_turns + 1 == cell.horizon
        assert cell.num_padding_turns >= 1


def test_the_hash_names_the_whole_design():
    assert Design().design_hash == Design().design_hash != Design(seed=1).design_hash
