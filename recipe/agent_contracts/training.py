"""Starts and resumes trainings: one run folder, one log, the command that made it, and a summary at the end."""

from __future__ import annotations

import contextlib
import datetime
import json
import sys
from pathlib import Path

from rich.console import Console

from recipe.agent_contracts.config.experiment import EVALUATED_ONLY
from recipe.agent_contracts.errors import ConfigContradiction
from recipe.agent_contracts.supervise import Finished, log_tail, run_supervised
from recipe.agent_contracts.transition.snapshots import write_atomically
from recipe.agent_contracts.update.commit import recover
from recipe.agent_contracts.update.ledger import Ledger

_LAUNCHER = [sys.executable, "-m", "verl_ext.launch"]
_OVERRIDES = "overrides.json"
_DEFAULT_STEPS = 40


def train(overrides: list[str], run: Path | None, console: Console) -> Finished:
    """Train in a new run folder.

    Raises:
        ConfigContradiction: when the folder already holds a run.
    """
    folder = (run or _new_folder(overrides)).absolute()
    # A start that was refused leaves no experiment behind, so that the same folder can be tried again.
    if (folder / "experiment.yaml").exists():
        raise ConfigContradiction(f"{folder} already holds a run; resume it, or name another folder")
    write_atomically(folder / _OVERRIDES, json.dumps(overrides).encode())
    return _run(folder, overrides, console)


def resume(folder: Path, overrides: list[str], console: Console) -> Finished:
    """Go on in `folder` with the overrides it was started with; later ones win.

    Raises:
        FileNotFoundError: when the folder holds no run, or no committed checkpoint.
        RecordCorrupt: when the newest commit is damaged.
    """
    folder = folder.absolute()
    recorded = folder / _OVERRIDES
    if not recorded.exists():
        raise FileNotFoundError(f"{folder} holds no run ({_OVERRIDES} is missing)")
    with contextlib.closing(Ledger(folder)) as ledger:
        checkpoint = recover(folder, ledger)
    if checkpoint is None:
        raise FileNotFoundError(f"{folder} holds no committed checkpoint; start anew, with trainer.save_freq > 0")
    changed = {override.partition("=")[0] for override in overrides}
    kept = [override for override in json.loads(recorded.read_bytes()) if override.partition("=")[0] not in changed]
    # verl's own tracker file is written before the commit: it may name a step that never was one.
    where = ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={checkpoint}"]
    return _run(folder, [*kept, *overrides, *where], console)


def metrics_path(folder: Path) -> Path:
    """Where the next attempt's metrics go: verl's file logger would overwrite an existing file."""
    attempt = len(list(folder.glob("metrics*.jsonl")))
    return folder / ("metrics.jsonl" if attempt == 0 else f"metrics.{attempt}.jsonl")


def _run(folder: Path, overrides: list[str], console: Console) -> Finished:
    log, metrics = folder / "train.log", metrics_path(folder)
    console.print(f"run folder {folder}\nlog        {log}", soft_wrap=True)
    command = [*_LAUNCHER, *overrides, f"contract.run.folder={folder}"]
    finished = run_supervised(command, log, metrics, _total_steps(overrides))
    if finished.exit_code == 0:
        console.print(f"trained in {finished.wall_seconds:.0f} s, {finished.cpu_seconds:.0f} CPU-seconds")
        console.print(f"traces     mlflow ui --backend-store-uri sqlite:///{folder}/mlflow.db", soft_wrap=True)
    elif finished.exit_code == 130:
        console.print(f"stopped; go on with: agent-contracts resume {folder}", soft_wrap=True)
    else:
        console.print(f"[red]the run ended with exit code {finished.exit_code}[/red]; the end of {log}:")
        console.print(log_tail(log), markup=False)
    return finished


def _total_steps(overrides: list[str]) -> int:
    if any(f"contract.evaluation.control={control}" in overrides for control in EVALUATED_ONLY):
        return 0
    values = [
        override.partition("=")[2] for override in overrides if override.startswith("trainer.total_training_steps=")
    ]
    return int(values[-1]) if values else _DEFAULT_STEPS


def _new_folder(overrides: list[str]) -> Path:
    values = dict(override.partition("=")[::2] for override in overrides)
    root, experiment = values.get("contract.run.root", "runs"), values.get("contract.run.experiment", "terminal")
    return Path(root) / experiment / datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S")
