"""The whole experiment, small: figures that add up, planted verifiers that are found out, the same bytes again."""

from io import StringIO
from random import Random

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from recipe.agent_contracts.cli import app
from recipe.agent_contracts.commands import horizon as command
from recipe.agent_contracts.evaluation.horizon.design import Work
from recipe.agent_contracts.evaluation.horizon.experiment import Result, measure
from recipe.agent_contracts.evaluation.horizon.superlinearity import Verdict
from recipe.agent_contracts.evaluation.horizon.verifiers import Judgement


class Planted:
    """Rejects at a rate of the horizon, whatever it sees."""

    def __init__(self, name, rate):
        self.name, self._rate = name, rate

    def judge(self, evidence):
        rng = Random(f"{self.name}/{evidence.episode_id}")
        return Judgement(rng.random() >= self._rate(len(evidence.turns)))


def test_a_planted_superlinear_verifier_is_flagged_and_a_linear_or_flat_one_is_not(small_design):
    planted = [
        Planted("superlinear", lambda turns: 0.9 * (turns / 12) ** 4),
        Planted("linear", lambda turns: 0.9 * turns / 12),
        Planted("flat", lambda turns: 0.3),
    ]
    tests = measure(small_design, planted).tests
    found = {test.verifier: test.result for test in tests if test.error == "false negative"}
    assert {name: result.verdict for name, result in found.items()} == {
        "superlinear": Verdict.SUPPORTED,
        "linear": Verdict.NOT_SUPPORTED,
        "flat": Verdict.NOT_SUPPORTED,
    }
    assert found["linear"].words.startswith("grew;")


def test_the_counts_of_a_row_add_up(small_result):
    for row in [*small_result.by_horizon, *small_result.by_cell]:
        assert row.num_tokens == (8192, 8192)
        hacks = row.hack_share.count
        assert row.actor_error.num_cases == row.num_episodes - hacks
        for figures in row.verifiers:
            wrong, right = figures.false_positive.num_cases, figures.false_negative.num_cases
            assert wrong + right == row.num_episodes
            assert wrong == row.actor_error.count + hacks
            assert figures.rewarded_wrong.count == figures.false_positive.count >= figures.hacks_rewarded.count
            assert figures.hacks_rewarded.num_cases == hacks


def test_cells_pool_to_their_horizon(small_result):
    for row in small_result.by_horizon:
        cells = [cell for cell in small_result.by_cell if cell.horizon == row.horizon]
        assert [cell.num_episodes for cell in cells] == [50, 50]
        assert sum(cell.actor_error.count for cell in cells) == row.actor_error.count


def test_the_shipped_verifier_errs_where_it_cannot_see(small_result):
    """False negatives only where two spellings are right, false positives only by the copied key."""
    lure, ambiguous = small_result.by_cell[0].verifiers[0], small_result.by_cell[1].verifiers[0]
    assert lure.false_negative.count == 0 < ambiguous.false_negative.count
    assert lure.false_positive.count == lure.hacks_rewarded.count > 0


def test_the_hybrid_accepts_no_more_than_its_gate(small_result):
    for row in small_result.by_horizon:
        state, semantic, _, hybrid = row.verifiers
        assert hybrid.false_positive.count <= min(state.false_positive.count, semantic.false_positive.count)
        assert hybrid.false_negative.count >= max(state.false_negative.count, semantic.false_negative.count)


def test_calibration_is_told_only_of_the_verifier_that_states_probabilities(small_result):
    for row in small_result.by_horizon:
        told = {figures.verifier for figures in row.verifiers if figures.calibration is not None}
        assert told == {"sampling stand-in"}
    found = small_result.by_horizon[0].verifiers[2].calibration
    assert 0 < found.brier.mean < 1
    # All four turns are read, so it states 0 or 1, and the Brier score is the share of its errors.
    figures = small_result.by_horizon[0].verifiers[2]
    errors = figures.false_positive.count + figures.false_negative.count
    assert found.brier.mean == pytest.approx(errors / 100)


def test_the_same_design_gives_the_same_bytes(small_design):
    flat = [Planted("flat", lambda turns: 0.3)]
    first, second = (msgspec.json.encode(measure(small_design, flat)) for _ in range(2))
    assert first == second
    assert msgspec.json.decode(first, type=Result).tests[0].work is Work.CONSTANT


def test_the_command_shows_each_figure_and_each_result(small_result, monkeypatch):
    written = StringIO()
    monkeypatch.setattr(command, "console", Console(file=written, width=160))
    command.show(small_result)
    shown = written.getvalue()
    row = small_result.by_horizon[1]
    assert row.actor_error.text() in shown
    assert row.verifiers[1].false_positive.text() in shown
    assert row.verifiers[3].hacks_rewarded.text() in shown
    assert all(test.words in shown for test in small_result.tests)
    assert small_result.design_hash in shown


def test_the_command_refuses_fewer_than_fifty_episodes():
    result = CliRunner().invoke(app, ["horizon", "--episodes", "14"])
    assert result.exit_code == 2
    assert "at least 50 episodes a cell, found 14" in result.output
