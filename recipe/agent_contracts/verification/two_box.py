"""Judges artifacts that must be executed, with two processes that share nothing but a pipe of JSON lines.

The candidate's box runs the agent's files and knows the arguments of one call at a time. The grader, this process,
holds the expected values, never imports what the agent wrote, and compares exact JSON values. So an agent that ends the
process, lies about equality or patches a test framework changes only its own answers. A candidate that crashes, hangs
or answers something else fails that case, and the next case gets a new box; a box that cannot be made is a
`VerifierFailure`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from recipe.agent_contracts.errors import GuaranteeUnavailable, VerifierFailure
from recipe.agent_contracts.verification import strict_json
from recipe.agent_contracts.verification.boxes import capture
from recipe.agent_contracts.verification.boxes.base import PYTHON, Box, Limits, Running
from recipe.agent_contracts.verification.boxes.choose import open_box
from recipe.agent_contracts.verification.boxes.guarantee import REQUIRED_BY_DEFAULT, Guarantee

READY_SECONDS = 20.0
"""For the candidate's interpreter to start, before any of the agent's code."""
MAX_NAME_CHARACTERS = 80
_PROGRAM = Path(__file__).with_name("candidate.py").read_text()


class Case(msgspec.Struct, frozen=True):
    """One hidden call and what it must return, both as JSON values."""

    arguments: list[Any]
    expected: Any


class Judgement(msgspec.Struct, frozen=True):
    """How the hidden cases went, and in what box."""

    failures: list[str | None]
    """For each case why it failed, or None when it passed."""
    box: str
    """The backend's name."""
    guarantees: list[str]
    """What the box gave, sorted."""

    @property
    def passed(self) -> int:
        """The number of cases that passed."""
        return self.failures.count(None)


class TwoBoxGrader:
    """Grades the function of a module that the agent wrote.

    Args:
        module: The module's name; its file lies at the top of the artifact.
        function: The function to call.
        limits: Of the candidate; `seconds` is for one case.
        box: Default: the strongest that may run agent code and gives `REQUIRED_BY_DEFAULT`.

    Raises:
        GuaranteeUnavailable: when there is no such box, or no agent code may run in the one given.
    """

    def __init__(self, module: str, function: str, limits: Limits | None = None, box: Box | None = None) -> None:
        self.module = module
        self.function = function
        self.limits = limits or Limits()
        self.box = box or open_box(REQUIRED_BY_DEFAULT | {Guarantee.AGENT_CODE})
        if Guarantee.AGENT_CODE not in self.box.guarantees:
            raise GuaranteeUnavailable("verification.two_box", Guarantee.AGENT_CODE, "none", self.box.name)

    def judge(self, artifact: Mapping[str, bytes], cases: Sequence[Case]) -> Judgement:
        """Run the hidden cases against an artifact, in boxes made for this scoring.

        Args:
            artifact: The agent's files by relative path.
            cases: The hidden cases.

        Raises:
            VerifierFailure: when a box could not be made.
        """
        failures: list[str | None] = []
        candidate: _Candidate | None = None
        try:
            for number, case in enumerate(cases):
                candidate = candidate or _Candidate(self.box, artifact, self.limits)
                request = {"module": self.module, "function": self.function, "arguments": case.arguments}
                try:
                    value = candidate.call({"id": number, **request})
                except _NoAnswer as failure:
                    failures.append(str(failure))
                    candidate.end()
                    candidate = None
                else:
                    failures.append(_compared(value, number, case.expected))
        finally:
            if candidate is not None:
                candidate.end()
        return Judgement(failures, self.box.name, sorted(self.box.guarantees))


class _NoAnswer(Exception):
    """The candidate gave no answer, and is not asked again."""


class _Candidate:
    """The agent's files in a box, ready to be called."""

    def __init__(self, box: Box, artifact: Mapping[str, bytes], limits: Limits) -> None:
        self._limits = limits
        self._running: Running = box.start([*PYTHON, "-c", _PROGRAM], artifact, limits, keep_stderr=False)
        self._unread = b""
        try:
            ready = self._line(time.monotonic() + READY_SECONDS)
        except _NoAnswer as failure:
            self.end()
            raise VerifierFailure("verification.two_box", "a candidate that is ready", failure, box.name) from failure
        assert ready == b'"ready"', ready

    def call(self, request: dict[str, Any]) -> Any:
        """One answer, decoded.

        Raises:
            _NoAnswer: when it does not read or answer in time, dies, or says something that is no strict JSON.
        """
        if self._unread:
            raise _NoAnswer("it spoke unasked")
        deadline = time.monotonic() + self._limits.seconds
        if not capture.send(self._running.stdin, json.dumps(request, allow_nan=False).encode() + b"\n", deadline):
            raise _NoAnswer("it did not read the call")
        line = self._line(deadline)
        try:
            return strict_json.decode(line, self._limits.output_bytes)
        except ValueError as error:
            raise _NoAnswer(f"its answer is not strict JSON ({error})") from error

    def end(self) -> None:
        self._running.end()

    def _line(self, deadline: float) -> bytes:
        while b"\n" not in self._unread:
            if len(self._unread) > self._limits.output_bytes:
                raise _NoAnswer(f"its answer is longer than {self._limits.output_bytes} bytes")
            block = capture.receive(self._running.stdout, deadline)
            if block is None:
                raise _NoAnswer("no answer in time")
            if not block:
                raise _NoAnswer("it ended without an answer")
            self._unread += block
        line, _, self._unread = self._unread.partition(b"\n")
        return line


def _compared(answer: Any, number: int, expected: Any) -> str | None:
    if not isinstance(answer, dict) or not strict_json.same(answer.get("id"), number):
        return "an answer to another call"
    if set(answer) != {"id", "value"}:
        return f"it raised {_shown(answer.get('error'))}"
    return None if strict_json.same(answer["value"], expected) else "another value than expected"


def _shown(name: object) -> str:
    """The name of an exception, which the agent chose: shown in logs and reports only where it is a plain one."""
    is_plain = isinstance(name, str) and name.isidentifier() and len(name) <= MAX_NAME_CHARACTERS
    return str(name) if is_plain else "something without a plain name"
