"""docs/gates.md says of each gate what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recipe.agent_contracts.evaluation.gates import GATES
from recipe.agent_contracts.evaluation.gates.base import CountingGate

PAGE = Path(__file__).parents[4] / "docs" / "gates.md"
ROWS = [
    [cell.strip().replace("`", "") for cell in line.strip("|").split(" | ")]
    for line in PAGE.read_text().splitlines()
    if re.match(r"\| G\d\d ", line)
]


def test_the_table_holds_every_gate_in_order_by_id_and_name():
    assert [row[0] for row in ROWS] == [f"{gate.id} {gate.name}" for gate in GATES]


@pytest.mark.parametrize(
    ("gate", "row"), list(zip(GATES, ROWS, strict=True)), ids=lambda found: getattr(found, "id", "row")
)
def test_figure_tolerance_and_evidence_are_the_codes_own(gate, row):
    _, _, figure, tolerance, evidence, _, _ = row
    assert tolerance == ("preregistered: contract.consistency" if gate.id == "G09" else gate.tolerance)
    assert evidence == gate.evidence
    if issubclass(gate, CountingGate):
        assert figure == gate.unit
