"""The supervisor of a box without namespaces ends all that it may signal: so it must be able to signal nobody else."""

from __future__ import annotations

import os

import pytest

from recipe.agent_contracts.verification.boxes import enter, kernel


def landlock_abi() -> int:
    try:
        return kernel.landlock_abi()
    except OSError:
        return 0


def refuses(confine: bool) -> bool:
    """Whether a child of this process refuses to be a supervisor."""
    child = os.fork()
    if child == 0:
        try:
            if confine:
                kernel.keep_signals_in()
            enter._check_signals_stay_in()
        except OSError:
            os._exit(7)
        except BaseException:
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 7)
    return status == 7


@pytest.mark.skipif(landlock_abi() < kernel.LANDLOCK_ABI, reason="needs Landlock ABI 6 (Linux 6.12)")
def test_a_supervisor_works_only_where_its_signals_stay_in():
    assert refuses(confine=False)
    assert not refuses(confine=True)
