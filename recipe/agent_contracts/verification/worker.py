"""The verifier's own process: strict JSON lines on a private pipe, one answer for each request.

Started by `verification.clean_room` in a box. Whatever the verifier prints goes to stderr, so only verdicts travel
on the pipe.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import msgspec

from recipe.agent_contracts.canonical import sha256_bytes
from recipe.agent_contracts.domains import load
from recipe.agent_contracts.verification.layers import verdict_of


def serve(verifier: Any, requests: Any, answers: Any) -> None:
    """Answer requests until the pipe closes. A verifier that raises gives an error answer, never a verdict."""
    for line in requests:
        request = json.loads(line)
        state = request["state"].encode()
        echo = {"nonce": request["nonce"], "state_hash": sha256_bytes(state)}
        try:
            verdict = msgspec.to_builtins(verdict_of(verifier, request["grader"], state))
            answer = json.dumps({**echo, "verdict": verdict}, allow_nan=False)
        except Exception as error:  # the boundary: a broken verifier is reported to the parent as such
            answer = json.dumps({**echo, "error": f"{type(error).__name__}: {error}"})
        answers.write(answer.encode() + b"\n")
        answers.flush()


def main(verifier: str) -> None:
    """Serve a verifier, `module:Class`, on this process's stdin and stdout."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(load(verifier)(), sys.stdin.buffer, answers)
