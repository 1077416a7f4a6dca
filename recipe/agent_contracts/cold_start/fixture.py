"""The cold-started policy as a cached fixture: `<cache>/cold_start/<key>/{model,tokenizer,report.json}`.

The key is a hash over everything that decides the weights: the sources that training imports, the configuration, and
the versions of the libraries that compute. The model and the tokenizer lie in two folders, because AutoTokenizer
replaces a custom pre-tokenizer beside a config.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recipe.agent_contracts.canonical import sha256_file, sha256_json
from recipe.agent_contracts.cold_start.config import EVAL_STREAM, ColdStartConfig

_PACKAGE = Path(__file__).parent
_CONTRACTS = _PACKAGE.parent
SOURCES = (
    "canonical.py",
    "cold_start",
    "errors.py",
    "generation.py",
    "transition/__init__.py",
    "transition/actions.py",
    "transition/canonical_state.py",
    "transition/env.py",
    "transition/envs/terminal",
    "transition/episode.py",
    "transition/observations.py",
    "transition/parsers",
    "transition/rendering.py",
    "transition/state.py",
    "transition/termination.py",
    "transition/tree.py",
    "verification/__init__.py",
    "verification/layers.py",
    "verification/terminal.py",
    "verification/verifier.py",
)
"""Files and folders under recipe/agent_contracts that decide the weights or the report; a test compares them with what
training imports."""
_LIBRARIES = ("tokenizers", "torch", "transformers")


def cache_key(config: ColdStartConfig) -> str:
    """Sixteen hex digits that change whenever the weights could."""
    named = [_CONTRACTS / source for source in SOURCES]
    files = [file for path in named for file in (sorted(path.iterdir()) if path.is_dir() else [path]) if file.is_file()]
    content = {
        "config": dataclasses.asdict(config),
        "libraries": {name: importlib.metadata.version(name) for name in _LIBRARIES},
        "sources": {path.relative_to(_CONTRACTS).as_posix(): sha256_file(path) for path in files},
    }
    return sha256_json(content).removeprefix("sha256:")[:16]


def fixture_folder(config: ColdStartConfig) -> Path:
    """Where the fixture of this configuration lies or will lie; the cache's root is `AGENT_CONTRACTS_CACHE`."""
    return Path(os.environ.get("AGENT_CONTRACTS_CACHE", ".cache")) / "cold_start" / cache_key(config)


def checkpoint_digest(folder: Path) -> str:
    """`sha256:<hex>` of the weights file."""
    return sha256_file(folder / "model" / "model.safetensors")


def ensure_fixture(config: ColdStartConfig) -> Path:
    """Train the policy unless it is cached. A run that was interrupted leaves nothing behind under the key.

    Returns:
        The folder that holds `model`, `tokenizer` and `report.json`.
    """
    folder = fixture_folder(config)
    if not (folder / "report.json").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="unfinished-") as unfinished:
            built = Path(unfinished) / "fixture"
            _build(config, built)
            shutil.rmtree(folder, ignore_errors=True)
            built.rename(folder)
    return folder


def _build(config: ColdStartConfig, folder: Path) -> None:
    from transformers.utils import logging

    from recipe.agent_contracts.cold_start.train import train

    logging.disable_progress_bar()
    started = time.monotonic(), time.process_time()
    with _Progress(config) as progress:
        model, tokenizer = train(config, progress.report)
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "tokenizer")
    trained = time.monotonic(), time.process_time()
    report = {
        "heldout": _heldout_success(config, folder),
        "train_seconds": round(trained[0] - started[0], 1),
        "train_cpu_seconds": round(trained[1] - started[1], 1),
        "eval_seconds": round(time.monotonic() - trained[0], 1),
        "checkpoint_digest": checkpoint_digest(folder),
    }
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n")


def _heldout_success(config: ColdStartConfig, folder: Path) -> dict[str, Any]:
    """Success of the policy as it was saved, so that what is measured is what reinforcement learning will load."""
    from transformers import AutoModelForCausalLM

    from recipe.agent_contracts.cold_start.evaluate import evaluate
    from recipe.agent_contracts.cold_start.tokenizer import load_tokenizer
    from recipe.agent_contracts.transition.envs.terminal.dataset import heldout_scenarios
    from recipe.agent_contracts.transition.envs.terminal.task import HELDOUT_SPLITS

    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder / "model"), load_tokenizer(folder / "tokenizer")
    scenarios = heldout_scenarios(config.num_eval_tasks, EVAL_STREAM)
    result: dict[str, Any] = {}
    for decoding, temperature, attempts in (("temperature_1", 1.0, config.num_eval_attempts), ("greedy", 0.0, 1)):
        outcomes = evaluate(model, tokenizer, scenarios, temperature=temperature, num_attempts=attempts)
        result[decoding] = {"all": _count([outcome.score.task_success for outcome in outcomes])}
        for split in HELDOUT_SPLITS:
            scores = [outcome.score.task_success for outcome in outcomes if outcome.split == split]
            result[decoding][split] = _count(scores)
    return result


def _count(scores: Sequence[float]) -> dict[str, float]:
    return {
        "successes": sum(scores),
        "episodes": len(scores),
        "rate": round(sum(scores) / len(scores), 4) if scores else 0.0,
    }


class _Progress:
    """A progress bar on a terminal, a line every 100 steps elsewhere."""

    def __init__(self, config: ColdStartConfig) -> None:
        self._total = {"warm-up": config.warmup_steps, "imitation": config.imitation_steps}
        self._steps = dict.fromkeys(self._total, 0)
        self._recent: list[float] = []

    def __enter__(self) -> _Progress:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total} loss {task.fields[loss]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._bar.start()
        self._tasks = {name: self._bar.add_task(name, total=total, loss="-") for name, total in self._total.items()}
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def report(self, stage: str, loss: float) -> None:
        self._steps[stage] += 1
        self._recent = [*self._recent[-49:], loss]
        mean = f"{sum(self._recent) / len(self._recent):.3f}"
        self._bar.update(self._tasks[stage], completed=self._steps[stage], loss=mean)
        if self._bar.disable and self._steps[stage] % 100 == 0:
            print(f"{stage} {self._steps[stage]}/{self._total[stage]} loss {mean}", file=sys.stderr, flush=True)


def main() -> None:
    """Make the fixture if needed and print where it is and what it can do."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--imitation-steps", type=int, default=ColdStartConfig().imitation_steps)
    config = ColdStartConfig(imitation_steps=parser.parse_args().imitation_steps)
    folder = ensure_fixture(config)
    report = json.loads((folder / "report.json").read_text())
    for decoding, halves in report["heldout"].items():
        for half, count in halves.items():
            print(f"{decoding:14} {half:24} {count['successes']:.0f}/{count['episodes']} = {count['rate']:.3f}")
    print(f"trained in {report['train_seconds']} s ({report['train_cpu_seconds']} CPU-s)")
    print(f"folder {folder}")
    print(f"checkpoint {checkpoint_digest(folder)}")


if __name__ == "__main__":
    main()
