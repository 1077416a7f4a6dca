"""Scores final states in a verifier's own process, in the clean room, and tells a verdict from a failure to give one.

A verifier that raises, hangs, dies or answers something else than was asked is a `VerifierFailure`; its process is
ended and a fresh one serves the next request. A failure never becomes reward 0.
"""

from __future__ import annotations

import json
import queue
import secrets
import threading
import time
from typing import Any

import msgspec

from recipe.agent_contracts.canonical import sha256_bytes
from recipe.agent_contracts.errors import VerifierFailure
from recipe.agent_contracts.verification import strict_json
from recipe.agent_contracts.verification.boxes import capture
from recipe.agent_contracts.verification.boxes.base import Running
from recipe.agent_contracts.verification.clean_room import CleanRoom, open_room
from recipe.agent_contracts.verification.layers import Verdict
from recipe.agent_contracts.verification.verifier import Score

MAX_ANSWER_BYTES = 16 << 20
"""Of one verdict; a verifier that says more has failed."""


class VerifierProcess:
    """One verifier process, started on first use and again after a failure.

    Args:
        verifier: `module:Class` of a `Verifier`.
        timeout_seconds: For one score, start of the process included.
        room: Where it runs. Default: the strongest that this machine gives.
    """

    def __init__(self, verifier: str, timeout_seconds: float, room: CleanRoom | None = None) -> None:
        self.verifier = verifier
        self.timeout_seconds = timeout_seconds
        self.room = room or open_room()
        self._process: Running | None = None
        self._lock = threading.Lock()

    def score(self, grader: dict[str, Any], final_state: bytes) -> Score:
        """The reward vector of a sealed final state; raises as `verify` does."""
        return self.verify(grader, final_state).score

    def verify(self, grader: dict[str, Any], final_state: bytes) -> Verdict:
        """Judge a sealed final state.

        Raises:
            VerifierFailure: when there is no trustworthy verdict, with the reason.
        """
        nonce = secrets.token_hex(8)
        request = {"nonce": nonce, "grader": grader, "state": final_state.decode()}
        with self._lock:
            try:
                answer = self._ask(json.dumps(request).encode() + b"\n")
            except Exception:
                self._end()
                raise
        return self._verdict(answer, nonce, sha256_bytes(final_state))

    def close(self) -> None:
        """End the process. The next `score` starts a fresh one."""
        with self._lock:
            self._end()

    def _ask(self, line: bytes) -> dict[str, Any]:
        deadline = time.monotonic() + self.timeout_seconds
        process = self._started()
        if not capture.send(process.stdin, line, deadline):
            raise self._failure("a process that does not read its request")
        try:
            return self._decode(capture.read_line(process.stdout, deadline, MAX_ANSWER_BYTES))
        except TimeoutError as error:
            raise self._failure(f"no verdict within {self.timeout_seconds} s") from error
        except EOFError as error:
            raise self._failure("its process ended without a verdict") from error

    def _decode(self, answer: bytes) -> dict[str, Any]:
        try:
            decoded = strict_json.decode(answer)
        except ValueError as error:
            raise self._failure(f"an answer that is not strict JSON ({error})") from error
        if not isinstance(decoded, dict):
            raise self._failure("an answer that is not an object")
        return decoded

    def _verdict(self, answer: dict[str, Any], nonce: str, state_hash: str) -> Verdict:
        if answer.get("nonce") != nonce or answer.get("state_hash") != state_hash:
            raise self._failure("an answer to another request")
        if "error" in answer:
            raise self._failure(answer["error"])
        try:
            verdict = msgspec.convert(answer.get("verdict"), Verdict)
        except msgspec.ValidationError as error:
            raise self._failure(f"a malformed score ({error})") from error
        # What the place guarantees is ours to say, not the verifier's.
        guarantees = sorted(self.room.guarantees)
        return msgspec.structs.replace(verdict, backend=self.room.box.name, guarantees=guarantees)

    def _started(self) -> Running:
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = self.room.start(self.verifier)
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def _failure(self, found: str) -> VerifierFailure:
        return VerifierFailure("verification.verdict", expected="a score", found=found, evidence=self.verifier)


class VerifierPool:
    """Processes of one verifier; a request takes one that is free, or waits for it.

    Args:
        verifier: `module:Class` of a `Verifier`.
        timeout_seconds: For one score, once a process took it up.
        num_processes: How many may score at once.
        room: As of `VerifierProcess`.
    """

    def __init__(
        self, verifier: str, timeout_seconds: float, num_processes: int, room: CleanRoom | None = None
    ) -> None:
        room = room or open_room()
        self.processes = [VerifierProcess(verifier, timeout_seconds, room) for _ in range(num_processes)]
        self._free: queue.SimpleQueue[VerifierProcess] = queue.SimpleQueue()
        for process in self.processes:
            self._free.put(process)

    def score(self, grader: dict[str, Any], final_state: bytes) -> Score:
        """As `VerifierProcess.score`."""
        return self.verify(grader, final_state).score

    def verify(self, grader: dict[str, Any], final_state: bytes) -> Verdict:
        """As `VerifierProcess.verify`. Safe to call from any number of threads."""
        process = self._free.get()
        try:
            return process.verify(grader, final_state)
        finally:
            self._free.put(process)

    def close(self) -> None:
        """End every process."""
        for process in self.processes:
            process.close()
