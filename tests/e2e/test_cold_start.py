"""The cold start is a function of its seed: two trainings from nothing give the same checkpoint, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import read_tail, run_limited

pytestmark = [pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(3600)]


def checkpoint(log: Path, **environment: str) -> str:
    """What `scripts/cold_start.sh` prints as the digest of the weights."""
    assert run_limited(["bash", "scripts/cold_start.sh"], 1700, log, **environment) == 0, read_tail(log)
    [line] = [line for line in log.read_text().splitlines() if line.startswith("checkpoint ")]
    return line.removeprefix("checkpoint ")


def test_a_second_training_gives_the_same_checkpoint(logs: Path, tmp_path: Path) -> None:
    cached = checkpoint(logs / "cold_start.log")
    assert cached.startswith("sha256:")
    assert checkpoint(logs / "cold_start_again.log", AGENT_CONTRACTS_CACHE=str(tmp_path)) == cached
