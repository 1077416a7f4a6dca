"""A box is chosen by what was tried: a false claim is found, nothing is weakened in silence, each refusal says why."""

from __future__ import annotations

import pytest

from recipe.agent_contracts.errors import GuaranteeUnavailable
from recipe.agent_contracts.verification.boxes import choose
from recipe.agent_contracts.verification.boxes.bubblewrap import Bubblewrap
from recipe.agent_contracts.verification.boxes.canonical import Canonical
from recipe.agent_contracts.verification.boxes.guarantee import MEANING, REQUIRED_BY_DEFAULT, Guarantee


class Boastful(Canonical):
    """A plain process that claims everything."""

    name = "boastful"
    guarantees = frozenset(Guarantee)


class WithoutProgram(Bubblewrap):
    name = "without_program"

    def _check_caller(self):
        from recipe.agent_contracts.errors import VerifierFailure

        raise VerifierFailure("verification.box", "the program bwrap", "ENOENT")


def test_the_probe_refutes_what_a_plain_process_does_not_give():
    probed = choose.probe(Boastful)
    kept = {Guarantee.ENV_CLEAN, Guarantee.RESULT_PRIVATE, Guarantee.MEMORY_QUOTA}
    untried = {Guarantee.AGENT_CODE, Guarantee.INODE_QUOTA}
    assert probed.held == kept | untried
    assert "a daemon was alive" in probed.seen[Guarantee.NO_SURVIVORS]
    assert (
        "was traced" in probed.seen[Guarantee.HARNESS_UNTOUCHABLE]
        or "environment" in probed.seen[Guarantee.HARNESS_UNTOUCHABLE]
    )


def test_a_missing_guarantee_is_an_error_that_names_it_and_what_each_backend_showed(monkeypatch):
    monkeypatch.setattr(choose, "BACKENDS", (WithoutProgram, Canonical))
    with pytest.raises(GuaranteeUnavailable) as caught:
        choose.open_box(frozenset({Guarantee.NO_NETWORK, Guarantee.ENV_CLEAN}))
    said = str(caught.value)
    assert "without_program lacks no_network: ENOENT" in said
    assert "canonical lacks no_network: not given by this backend" in said
    assert "canonical lacks env_clean" not in said


def test_only_a_named_guarantee_may_be_missing_and_the_box_says_what_it_gives(monkeypatch):
    monkeypatch.setattr(choose, "BACKENDS", (WithoutProgram, Canonical))
    weaker = frozenset({Guarantee.NO_NETWORK})
    box = choose.open_box(weaker | {Guarantee.ENV_CLEAN}, allow_weaker=weaker)
    assert box.name == "canonical"
    assert Guarantee.NO_NETWORK not in box.guarantees and Guarantee.ENV_CLEAN in box.guarantees
    with pytest.raises(GuaranteeUnavailable):
        choose.open_box(weaker | {Guarantee.NO_SURVIVORS}, allow_weaker=weaker)


def test_a_stronger_backend_is_taken_before_a_weaker_one(monkeypatch):
    monkeypatch.setattr(choose, "BACKENDS", (Boastful, Canonical))
    assert choose.open_box(frozenset({Guarantee.ENV_CLEAN})).name == "boastful"


def test_what_no_backend_gives_is_refused():
    with pytest.raises(GuaranteeUnavailable, match="inode_quota"):
        choose.open_box(REQUIRED_BY_DEFAULT | {Guarantee.INODE_QUOTA})


def test_a_probe_is_made_once():
    assert choose.probe(Canonical) is choose.probe(Canonical)


def test_every_guarantee_has_a_meaning():
    assert MEANING.keys() == set(Guarantee)
