"""An experiment that needs more of snapshots than its environment promises is refused, with both keys named."""

from __future__ import annotations

import pytest

from recipe.agent_contracts import domains
from recipe.agent_contracts.config import bindings
from recipe.agent_contracts.config.snapshot_needs import unmet_needs
from recipe.agent_contracts.errors import ConfigContradiction
from recipe.agent_contracts.transition.env import Capabilities
from recipe.agent_contracts.transition.envs.terminal.env import TerminalEnv
from recipe.agent_contracts.transition.state import SnapshotKind

RECORD = SnapshotKind.RECORD_REPLAY
FULL = {"snapshot_kind": SnapshotKind.CANONICAL_STATE, "restore": True, "fork": True, "exact_replay": True}


SHIPPED = {"snapshot_backend": "canonical_state", "base_snapshot_per_task": True, "branching": False}


@pytest.mark.parametrize(
    ("declared", "needs", "unmet"),
    [
        (FULL, {"branching": True}, []),
        ({**FULL, "fork": False}, {}, []),
        ({**FULL, "fork": False}, {"branching": True}, ["branching"]),
        ({**FULL, "fork": False, "restore": False}, {}, ["base_snapshot_per_task"]),
        ({**FULL, "exact_replay": False}, {}, ["snapshot_backend"]),
        ({**FULL, "snapshot_kind": SnapshotKind.WORKSPACE}, {}, ["snapshot_backend"]),
        ({**FULL, "snapshot_kind": SnapshotKind.WORKSPACE}, {"snapshot_backend": "workspace"}, []),
        ({"snapshot_kind": RECORD, "restore": True}, {}, ["snapshot_backend"]),
        ({"snapshot_kind": RECORD, "restore": True}, {"snapshot_backend": "record_replay"}, []),
        ({}, {"branching": True}, ["snapshot_backend", "base_snapshot_per_task", "branching"]),
    ],
)
def test_each_need_is_compared_with_what_is_declared(declared, needs, unmet):
    found = unmet_needs(Capabilities(**declared), **{**SHIPPED, **needs})
    assert [need.key for need in found] == unmet


def test_a_shipped_domain_declares_what_its_environment_does():
    assert domains.capabilities_of("terminal") == TerminalEnv.capabilities


def test_a_backend_that_the_environment_has_not_is_refused_with_both_keys(changed):
    with pytest.raises(ConfigContradiction) as caught:
        bindings.check(changed({"contract.environment.snapshot_backend": "workspace"}))
    (message,) = str(caught.value).splitlines()[1:]
    assert "contract.environment.snapshot_backend=workspace contradicts contract.environment.domain=terminal" in message
    assert "declares canonical_state snapshots" in message
    assert "Set contract.environment.snapshot_backend=canonical_state" in message


def test_a_domain_that_declares_nothing_gets_nothing(changed, monkeypatch):
    silent = domains.Domain(environment="m:f", verifier="m:V")
    monkeypatch.setitem(domains.DOMAINS, "silent", silent)
    with pytest.raises(ConfigContradiction, match="record_replay snapshots") as caught:
        bindings.check(changed({"contract.environment.domain": "silent"}))
    assert "contract.environment.base_snapshot_per_task=true contradicts" in str(caught.value)
    assert "declares no restore" in str(caught.value)
