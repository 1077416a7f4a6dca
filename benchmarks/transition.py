"""What reset, snapshot, restore and fork of `terminal` cost, against `cp -a` and a git commit of the same files.

    python benchmarks/transition.py [--files 10 1000 20000] [--folder /tmp]

Everything is measured in one run, so the ratios hold on a loaded machine too. A time is the smallest of several, since
other processes can only add to it. `open` builds and hashes a task's first state, once an instance; `edit` is a whole
step that writes one file; `snapshot` is after 1% of the files were edited.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from recipe.agent_contracts.transition.actions import Action
from recipe.agent_contracts.transition.disk import write_tree
from recipe.agent_contracts.transition.envs.terminal.env import TerminalEnv
from recipe.agent_contracts.transition.envs.terminal.task import TerminalTask
from recipe.agent_contracts.transition.envs.terminal.tools import TOOL_NAMES
from recipe.agent_contracts.transition.envs.terminal.world import World
from recipe.agent_contracts.transition.tree import Directory, File

FILE_BYTES = 1000
FILES_PER_DIRECTORY = 100
TARGETS_MICROSECONDS = {"restore": 20.0, "fork": 20.0}
TARGET_SNAPSHOT_MICROSECONDS = {1000: 1000.0}
TARGET_RATIO = 50.0
"""Of `cp -a` to each of the four."""


def path_of(index: int) -> str:
    """The files lie in directories of 100."""
    return f"d{index // FILES_PER_DIRECTORY:03}/f{index:05}.txt"


def task_with(num_files: int) -> TerminalTask:
    """A task with many files of 1,000 bytes."""
    files = {path_of(index): f"{index:09}\n" * (FILE_BYTES // 10) for index in range(num_files)}
    return TerminalTask(
        task_id=f"{num_files} files",
        family="benchmark",
        operation="benchmark",
        template="benchmark",
        split="train",
        seed=0,
        objective="None.",
        files=files,
        allowed_tools=list(TOOL_NAMES),
        step_budget=8,
        token_budget=320,
    )


def fastest(function: Callable[[], object], repeats: int, prepare: Callable[[], object] = lambda: None) -> float:
    """The smallest of several times, in microseconds."""
    best = float("inf")
    for _ in range(repeats):
        prepare()
        started = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - started)
    return best * 1e6


def snapshot_operations(task: TerminalTask) -> dict[str, float]:
    """Microseconds of each operation of an environment."""
    env = TerminalEnv({task.task_id: task})
    env.reset(task.task_id, 0)
    base = env.snapshot("base")
    rng = random.Random(0)
    paths = list(task.files)

    def write() -> None:
        env.step(Action("tool", "write_file", {"path": rng.choice(paths), "content": f"{rng.random()}" * 20}))

    def edit_one_percent() -> None:
        # A step would hash what it wrote; like this the snapshot has every hash to make.
        files = World.from_tree(base.tree).files
        for path in rng.sample(paths, max(1, len(paths) // 100)):
            files = files.set(path, File(f"{rng.random():.16f}".encode() * 55))
        env.restore(msgspec.structs.replace(base, tree=World(files).tree()))

    def open_cold() -> None:
        cold = TerminalEnv({task.task_id: task})
        cold.reset(task.task_id, 0)
        cold.state_hash()

    return {
        "open": fastest(open_cold, 3),
        "reset": fastest(lambda: env.reset(task.task_id, 0), 200),
        "edit": fastest(write, 50),
        "snapshot": fastest(lambda: env.snapshot("edited"), 30, edit_one_percent),
        "restore": fastest(lambda: env.restore(base), 500),
        "fork": fastest(lambda: env.fork(base, "branch"), 500),
    }


def disk_operations(task: TerminalTask, folder: Path) -> dict[str, float]:
    """Microseconds of `cp -a` and of a first git commit of the same files on disk."""
    source, copy = folder / "source", folder / "copy"
    write_tree(Directory.from_files({path: content.encode() for path, content in task.files.items()}), source)
    repeats = 1 if len(task.files) > 5000 else 3
    copied = fastest(lambda: run("cp", "-a", source, copy), repeats, lambda: shutil.rmtree(copy, ignore_errors=True))

    def fresh_repository() -> None:
        shutil.rmtree(source / ".git", ignore_errors=True)
        run("git", "-C", source, "init", "-q")

    def commit() -> None:
        run("git", "-C", source, "add", "-A")
        run("git", "-C", source, "-c", "user.name=b", "-c", "user.email=b@localhost", "commit", "-qm", "x")

    return {"cp -a": copied, "git commit": fastest(commit, repeats, fresh_repository)}


def run(*command: str | Path) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    """Print one block a size, with each target beside what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, nargs="+", default=[10, 1000, 20000])
    parser.add_argument("--folder", type=Path, default=None, help="where the files of cp and git lie")
    arguments = parser.parse_args()
    for num_files in arguments.files:
        task = task_with(num_files)
        operations = snapshot_operations(task)
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            disk = disk_operations(task, Path(folder))
        print(
            f"\n{num_files} files of {FILE_BYTES} bytes: cp -a {disk['cp -a'] / 1000:.1f} ms, "
            f"git commit {disk['git commit'] / 1000:.1f} ms"
        )
        print(f"{'':10}{'us':>10}{'cp -a /':>12}{'commit /':>12}  target")
        for name, microseconds in operations.items():
            limit = TARGETS_MICROSECONDS.get(name)
            if name == "snapshot":
                limit = TARGET_SNAPSHOT_MICROSECONDS.get(num_files)
            print(
                f"{name:10}{microseconds:10.1f}{disk['cp -a'] / microseconds:12.0f}"
                f"{disk['git commit'] / microseconds:12.0f}  {judged(name, microseconds, limit, disk['cp -a'])}"
            )


def judged(name: str, microseconds: float, limit: float | None, copy_microseconds: float) -> str:
    """What was asked of an operation, and whether it was met."""
    asked = []
    if name in ("reset", "snapshot", "restore", "fork"):
        ratio = copy_microseconds / microseconds
        asked.append(f"cp -a >= {TARGET_RATIO:.0f}x: {'met' if ratio >= TARGET_RATIO else 'MISSED'}")
    if limit is not None:
        asked.append(f"<= {limit:.0f} us: {'met' if microseconds <= limit else 'MISSED'}")
    return ", ".join(asked)


if __name__ == "__main__":
    main()
