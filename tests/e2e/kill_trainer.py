"""Ends the trainer's process at a named point of the commit protocol, as kill -9 does; loaded as a user's module.

KILL_TRAINER_AT is `<point>:<step>`. Only the process that writes the ledger ever reaches these points.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from recipe.agent_contracts.update import commit
from recipe.agent_contracts.update.ledger import Ledger

POINTS = ("before_the_step", "between_step_and_checkpoint", "during_the_checkpoint", "after_the_commit_file")


def _kill_after(function: Callable[..., Any], is_there: Callable[..., bool]) -> Callable[..., Any]:
    def call(*arguments: Any, **keywords: Any) -> Any:
        result = function(*arguments, **keywords)
        if is_there(*arguments, **keywords):
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return call


if "KILL_TRAINER_AT" in os.environ:
    point, step = os.environ["KILL_TRAINER_AT"].split(":")
    match point:
        case "before_the_step":
            Ledger.admit = _kill_after(Ledger.admit, lambda self, groups, at: at == int(step))  # type: ignore[method-assign]
        case "between_step_and_checkpoint":
            Ledger.apply = _kill_after(  # type: ignore[method-assign]
                Ledger.apply, lambda self, groups, at, output_version: at == int(step)
            )
        case "during_the_checkpoint":
            commit._flush = _kill_after(commit._flush, lambda folder: folder.name == f"global_step_{step}")
        case "after_the_commit_file":
            commit.write_atomically = _kill_after(  # type: ignore[attr-defined]
                commit.write_atomically,  # type: ignore[attr-defined]
                lambda path, data: path.parent.name == f"global_step_{step}",
            )
