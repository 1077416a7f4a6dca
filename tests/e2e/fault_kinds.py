"""Which tasks misbehave and how. Apart from faulty_domain, so that the tests need not register that domain."""

import zlib

NUM_KINDS = 16
RAISES, HANGS = 1, 2
"""Of the environment, by the task's seed."""
VERIFIER_DIES = 3


def kind_of(task_id: str, seed: int) -> int | None:
    """The fault of a task. None: it is fine."""
    if seed % NUM_KINDS in (RAISES, HANGS):
        return seed % NUM_KINDS
    return VERIFIER_DIES if verifier_dies(task_id) else None


def verifier_dies(task_id: str) -> bool:
    """The verifier sees no seed, and its box neither environment nor files of the test."""
    return zlib.crc32(task_id.encode()) % 8 == 0
