"""What is drawn before an episode is played: the declared rates, one corruption, the label."""

import msgspec
import pytest

from recipe.agent_contracts.evaluation.horizon.design import Cell, Corruption, Design, Work
from recipe.agent_contracts.evaluation.horizon.script import Flaw, draw

LURE = Cell(Work.GROWS, 16, Corruption.SEMANTIC_LURE)


def drawn(cell, count=2000, **changes):
    design = Design(**changes)
    return [draw(design, cell, index) for index in range(count)]


def test_an_episode_has_one_corrupted_item_or_none():
    for corruption in Corruption:
        for script in drawn(Cell(Work.GROWS, 16, corruption), count=20):
            kinds = [item.corruption for item in script.items if item.corruption is not Corruption.NONE]
            assert kinds == ([] if corruption is Corruption.NONE else [corruption])


@pytest.mark.parametrize(
    ("work", "inject_at", "turn"),
    [
        # 15 items from turn 2 on: the first is read at turn 2, the middle one at 16, the last at 30.
        (Work.GROWS, 0.0, 2),
        (Work.GROWS, 0.5, 16),
        (Work.GROWS, 1.0, 30),
        (Work.CONSTANT, 0.0, 2),
        (Work.CONSTANT, 0.5, 16),
        (Work.CONSTANT, 1.0, 30),
    ],
)
def test_the_corruption_is_injected_at_the_chosen_turn(work, inject_at, turn):
    script = draw(Design(inject_at=inject_at), Cell(work, 32, Corruption.STALE_STATE), 0)
    assert script.injected_turn == turn


def test_the_rates_are_those_declared():
    """Binomial standard errors at 2000 episodes: .011 for .4, .009 for .2; 5 of them are allowed."""
    yields = sum(Flaw.GAVE_IN in script.flaws for script in drawn(LURE, hack_rate=0.0, slip_rate=0.0)) / 2000
    hacks = sum(script.is_hack for script in drawn(LURE)) / 2000
    slips = sum(script.flaws.count(Flaw.SLIP) for script in drawn(LURE, hack_rate=0.0, yield_rate=0.0)) / (2000 * 7)
    assert yields == pytest.approx(0.4, abs=0.055)
    assert hacks == pytest.approx(0.2, abs=0.045)
    assert slips == pytest.approx(0.02, abs=0.006)


def test_one_rate_moves_nothing_but_its_own_kind_of_flaw():
    slipping, careful = drawn(LURE, 200, slip_rate=0.5), drawn(LURE, 200, slip_rate=0.0)
    for script, other in zip(slipping, careful, strict=True):
        assert [flaw for flaw in script.flaws if flaw is not Flaw.SLIP] == list(other.flaws)


def test_the_other_spelling_is_no_flaw():
    scripts = drawn(Cell(Work.CONSTANT, 4, Corruption.AMBIGUOUS_RUBRIC), 300, hack_rate=0.0, slip_rate=0.0)
    assert all(script.is_right for script in scripts)
    assert {script.items[0].other_spelling for script in scripts} == {True, False}


def test_a_draw_is_a_function_of_seed_cell_and_number():
    assert draw(Design(), LURE, 3) == draw(Design(), LURE, 3)
    others = [draw(Design(seed=1), LURE, 3), draw(Design(), LURE, 4)]
    others += [draw(Design(), msgspec.structs.replace(LURE, work=Work.CONSTANT), 3)]
    assert len({script.items for script in (*others, draw(Design(), LURE, 3))}) == 4
