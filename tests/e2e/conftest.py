"""One short real run, shared by every end-to-end check: the smoke script with three steps and few held-out tasks.

AGENT_CONTRACTS_E2E_RUN names a finished run folder to check instead of training one.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
NUM_STEPS = 3
GROUP_SIZE = 8
TASKS_PER_BATCH = 16


def run_limited(command: list[str], limit_seconds: float, log: Path, **environment: str) -> int:
    """Run a command with a time limit; at the limit its whole process group is ended and the log is named."""
    with log.open("wb") as stream:
        child = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            stdout=stream,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        try:
            return child.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            # SIGINT first: the supervisor then ends Ray and the engine as for Ctrl-C.
            os.killpg(child.pid, signal.SIGINT)
            try:
                child.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
            pytest.fail(f"{command} took longer than {limit_seconds} s; log: {log}")


def read_tail(log: Path, num_lines: int = 40) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-num_lines:])


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="session")
def smoke_run(logs: Path) -> Iterator[Path]:
    """The run folder of `scripts/smoke.sh` with 3 steps."""
    if finished := os.environ.get("AGENT_CONTRACTS_E2E_RUN"):
        yield Path(finished).absolute()
        return
    run = REPOSITORY / "runs" / "e2e" / logs.parent.name
    log = logs / "smoke.log"
    print(f"\nlogs: {log} and {run}/train.log")
    command = ["bash", "scripts/smoke.sh", "data.val_max_samples=40"]
    # Half of the imitation steps: what is tested is the loop, not how good the policy is.
    settings = {"STEPS": str(NUM_STEPS), "COLD_START_STEPS": os.environ.get("COLD_START_STEPS", "900"), "RUN": str(run)}
    code = run_limited(command, 1500, log, **settings)
    assert code == 0, f"exit code {code}; {log}:\n{read_tail(log)}"
    yield run


def policy_folder(run: Path) -> Path:
    """The folder with model/ and tokenizer/ that a run started from."""
    return Path(_experiment(run)["actor_rollout_ref"]["model"]["path"]).parent


def train_like(smoke_run: Path, run: Path, train_file: Path | None = None) -> list[str]:
    """A training without evaluation, from the policy and the held-out tasks (and training tasks) of the shared run."""
    policy, data = policy_folder(smoke_run), _experiment(smoke_run)["data"]
    return train_command(
        run, policy / "model", policy / "tokenizer", train_file or data["train_files"], data["val_files"]
    )


def train_command(run: Path, model: Path, tokenizer: Path, train_file: Path | str, val_file: Path | str) -> list[str]:
    """A training without evaluation."""
    return [
        str(REPOSITORY / ".venv/bin/agent-contracts"),
        *("train", "--run", str(run)),
        f"actor_rollout_ref.model.path={model}",
        f"actor_rollout_ref.model.tokenizer_path={tokenizer}",
        f"data.train_files={train_file}",
        f"data.val_files={val_file}",
        "trainer.val_before_train=false",
        "trainer.test_freq=-1",
    ]


def _experiment(run: Path) -> dict[str, Any]:
    return yaml.safe_load((run / "experiment.yaml").read_text())


class Chromium:
    """Opens pages in headless Chromium and keeps what a person would see."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open_traces(self, store: str, screenshot: Path) -> str:
        """The text of the MLflow trace list of a store, with a screenshot."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [str(REPOSITORY / ".venv/bin/mlflow"), "server", "--backend-store-uri", store, "--port", str(port)]
        with (self.folder / "mlflow.log").open("wb") as log:
            server = subprocess.Popen([*command, "--workers", "1"], stdout=log, stderr=log, start_new_session=True)
        try:
            self._wait_for(f"http://127.0.0.1:{port}/health", server)
            return self._dump(f"http://127.0.0.1:{port}/#/experiments/1/traces", screenshot)
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()

    def _wait_for(self, url: str, server: subprocess.Popen[bytes]) -> None:
        for _ in range(120):
            assert server.poll() is None, (self.folder / "mlflow.log").read_text()
            try:
                with urllib.request.urlopen(url, timeout=2):
                    return
            except OSError:
                time.sleep(0.5)
        pytest.fail(f"mlflow did not answer; log: {self.folder}/mlflow.log")

    def _dump(self, url: str, screenshot: Path) -> str:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
        flags += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
        flags += [f"--user-data-dir={self.folder}/profile", "--window-size=1600,900", "--virtual-time-budget=20000"]
        subprocess.run(["chromium", *flags, f"--screenshot={screenshot}", url], check=True, timeout=120, stderr=-3)
        page = subprocess.run(["chromium", *flags, "--dump-dom", url], capture_output=True, text=True, timeout=120)
        return page.stdout


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Chromium:
    if shutil.which("chromium") is None:
        pytest.fail("chromium is missing: apt-get install chromium (Debian package)")
    return Chromium(tmp_path_factory.mktemp("chromium"))
