"""Verifiers that a box is tried with; in a module of their own, since they are imported in the box."""

import os
import socket
from pathlib import Path

from recipe.agent_contracts.verification.verifier import Score


class Curious:
    """Says in the vector what it could reach; the grader tells it where to look."""

    version = "curious-v1"

    def score(self, grader, final_state):
        return Score(
            task_success=1.0,
            extra={
                "environment": float("A_SECRET_OF_THE_CALLER" in os.environ),
                "file": float(_is_read(grader["file"])),
                "network": float(_is_connected(grader["port"])),
                "caller": float(
                    os.path.exists(f"/proc/{grader['pid']}/status") and _is_read(f"/proc/{grader['pid']}/status")
                ),
                "written": float(_is_written(Path(__file__).parent / "planted")),
            },
        )


def _is_read(path):
    try:
        return bool(Path(path).read_bytes())
    except OSError:
        return False


def _is_written(path):
    try:
        path.write_text("x")
    except OSError:
        return False
    return True


def _is_connected(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class Patient:
    version = "patient-v1"

    def score(self, grader, final_state):
        return Score(task_success=float(grader["name"] == final_state.decode()))
