"""What isolation costs: scorings in the clean room and in new candidate boxes, as ratios to the same without a box.

A scoring is the shipped verifier on a state of ten files, drawn out to 5 ms of CPU, or a call of agent code that takes
100 ms. Without a box both run in this process. Throughput is that of one worker; rounds are interleaved.

Usage: .venv/bin/python benchmarks/verification.py [--scorings 200] [--rounds 5]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import msgspec

from recipe.agent_contracts.transition.envs.terminal.task import Grader
from recipe.agent_contracts.verification.boxes.base import Limits
from recipe.agent_contracts.verification.process import VerifierProcess
from recipe.agent_contracts.verification.terminal import TerminalVerifier
from recipe.agent_contracts.verification.two_box import Case, TwoBoxGrader
from recipe.agent_contracts.verification.verifier import Score

STATE_SECONDS, CODE_SECONDS, TARGET_RATIO = 0.005, 0.1, 0.5
FILES = {f"file_{number}.txt": f"line {number}\n" * 20 for number in range(10)}
SOLUTION = f"""
import time

def square(number):
    end = time.process_time() + {CODE_SECONDS}
    while time.process_time() < end:
        pass
    return number * number
"""


class Paced(TerminalVerifier):
    """The shipped verifier, with work added up to a known CPU time."""

    def verify(self, grader: dict[str, Any], final_state: bytes) -> Any:
        """As the shipped one, later."""
        end = time.process_time() + STATE_SECONDS
        verdict = super().verify(grader, final_state)
        while time.process_time() < end:
            pass
        return verdict


def main() -> None:
    """Measure, print, and fail when a ratio misses its target."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--scorings", type=int, default=200)
    options.add_argument("--rounds", type=int, default=5)
    chosen = options.parse_args()
    grader = msgspec.to_builtins(
        Grader(task_id="benchmark", expected=FILES, untouched={}, invariants=[], must_finish=True)
    )
    state = msgspec.json.encode({"files": FILES, "declared": "finish", "tool_calls": 3})
    plain, paced = VerifierProcess("recipe.agent_contracts.verification.terminal:TerminalVerifier", 20.0), Paced()
    boxed = VerifierProcess("verification:Paced", 20.0)
    judge = TwoBoxGrader("solution", "square", Limits(seconds=20.0))
    scope: dict[str, Any] = {}
    exec(SOLUTION, scope)
    artifact, cases = {"solution.py": SOLUTION.encode()}, [Case([7], 49)]
    code_runs = max(1, chosen.scorings // 20)
    arms: dict[str, tuple[Callable[[], Any], int]] = {
        "state, no box": (lambda: _right(paced.score(grader, state)), chosen.scorings),
        "state, clean room": (lambda: _right(boxed.score(grader, state)), chosen.scorings),
        "code, no box": (lambda: scope["square"](7), code_runs),
        "code, new boxes": (lambda: _passed(judge.judge(artifact, cases).passed), code_runs),
        "state as it is, no box": (lambda: _right(TerminalVerifier().score(grader, state)), chosen.scorings),
        "state as it is, clean room": (lambda: _right(plain.score(grader, state)), chosen.scorings),
    }
    times = _measure(arms, chosen.rounds)
    plain.close()
    boxed.close()
    print(f"box {boxed.room.box.name}")
    for name, values in times.items():
        print(f"{name:28} p50 {statistics.median(values) * 1e3:8.3f} ms")
    ratios = {kind: _ratio(times, f"{kind}, no box", boxed_arm) for kind, boxed_arm in BOXED.items()}
    for kind, ratio in ratios.items():
        print(f"{kind}: throughput ratio {ratio:.2f}, target {TARGET_RATIO}")
    if min(ratios.values()) < TARGET_RATIO:
        raise SystemExit(f"missed: {ratios}")


BOXED = {"state": "state, clean room", "code": "code, new boxes"}


def _measure(arms: dict[str, tuple[Callable[[], Any], int]], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in arms}
    for call, _ in arms.values():
        call()  # starts what is started once
    for _ in range(rounds):
        for name, (call, count) in arms.items():
            for _ in range(count):
                began = time.perf_counter()
                call()
                times[name].append(time.perf_counter() - began)
    return times


def _ratio(times: dict[str, list[float]], without: str, boxed: str) -> float:
    """Of throughputs: scorings a second in the box, over those without."""
    return (sum(times[without]) / len(times[without])) / (sum(times[boxed]) / len(times[boxed]))


def _right(score: Score) -> None:
    assert score.task_success == 1.0


def _passed(count: int) -> None:
    assert count == 1


if __name__ == "__main__":
    main()
