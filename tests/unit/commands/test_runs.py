"""`agent-contracts runs gc`."""

import os
from pathlib import Path

from typer.testing import CliRunner

from recipe.agent_contracts.cli import app
from recipe.agent_contracts.transition.snapshots import BlobStore


def test_gc_counts_and_then_removes_what_no_record_names_and_the_run_still_replays(run):
    store = BlobStore(run / "blobs")
    path = Path(store.path(store.put(b"x" * 1_000_000)))
    os.utime(path, (0, 0))
    dry = CliRunner().invoke(app, ["runs", "gc", str(run), "--dry-run"])
    assert "1 blobs would be removed (1.0 MB)" in dry.output
    assert path.exists()
    collected = CliRunner().invoke(app, ["runs", "gc", str(run)])
    assert (collected.exit_code, path.exists()) == (0, False)
    assert CliRunner().invoke(app, ["replay", str(run)]).exit_code == 0
