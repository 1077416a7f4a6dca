"""No attack earns reward, none changes a later scoring, and what a backend does not stop is in its table, exactly."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from recipe.agent_contracts.verification.boxes.choose import BACKENDS
from recipe.agent_contracts.verification.boxes.guarantee import Guarantee
from tests.contracts.attacks.artifacts import ARTIFACTS, CASES
from tests.contracts.attacks.attacks import ATTACKS, NOT_GUARANTEED, STOPPED_WITHOUT_A_BOX, Attack
from tests.contracts.attacks.tiers import TIERS, UNCONFINED, Tier, outcome, probed

MAIN = [tier for tier in TIERS if not tier.is_variant]
attacked = pytest.mark.parametrize(
    "tier", [pytest.param(tier, marks=[pytest.mark.nightly] * tier.is_variant, id=tier.name) for tier in TIERS]
)


def outcome_or_skip(tier: Tier, found: Callable[[Tier], dict[str, Any] | str] = outcome) -> dict[str, Any]:
    result = found(tier)
    if isinstance(result, str):
        pytest.skip(result)
    if not result["held"]:
        reason = next(iter(result["seen"].values()))
        assert "the probe said" not in reason  # a box that was entered works
        pytest.skip(f"{tier.backend} does not work here: {reason}")
    return result


@pytest.mark.parametrize("tier", TIERS, ids=lambda tier: tier.name)
def test_every_claim_of_a_backend_that_works_here_holds(tier):
    result = outcome_or_skip(tier, probed)
    refuted = {name: seen for name, seen in result["seen"].items() if seen != "not given by this backend"}
    assert refuted == {}


@attacked
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_is_stopped_or_is_in_the_table_of_its_backend(tier: Tier, attack: Attack):
    result = outcome_or_skip(tier)
    succeeded, seen = result["attacks"][attack.name]
    listed = attack.name in NOT_GUARANTEED[tier.backend]
    assert listed or not succeeded, f"{attack.against} does not hold: {seen}"
    if listed:
        assert attack.against not in result["held"]
        if not succeeded:
            warnings.warn(
                f"{attack.name} is listed as not guaranteed by {tier.name}, and was stopped: {seen}", stacklevel=1
            )


@attacked
def test_no_attack_changes_a_later_scoring(tier: Tier):
    assert outcome_or_skip(tier)["honest"] == [len(CASES)] * 2


@pytest.mark.parametrize("tier", MAIN, ids=lambda tier: tier.name)
@pytest.mark.parametrize("artifact", ARTIFACTS)
def test_a_dishonest_artifact_earns_nothing_and_changes_no_later_scoring(tier: Tier, artifact: str):
    passed, failures, honest_afterwards = outcome_or_skip(tier)["artifacts"][artifact]
    assert passed == 0, failures
    assert honest_afterwards == len(CASES)


def test_without_a_box_the_attacks_succeed():
    attempted = outcome_or_skip(UNCONFINED)["attacks"]
    stopped = {name for name, (succeeded, _) in attempted.items() if not succeeded}
    assert stopped == STOPPED_WITHOUT_A_BOX.keys()


def test_a_locked_container_gets_the_box_that_needs_no_namespace():
    assert outcome_or_skip(TIERS[-1], probed)["chosen"] == "landlock"


def test_the_tables_name_attacks_and_backends_that_exist():
    names = {attack.name for attack in ATTACKS}
    assert len(names) == len(ATTACKS)
    assert all(listed <= names for listed in NOT_GUARANTEED.values())
    assert NOT_GUARANTEED.keys() == {backend.name for backend in BACKENDS} - {"canonical"}


def test_a_layer_of_the_strongest_box_stops_at_least_thirty_attacks_that_succeed_without_it():
    stopped = [attack for attack in ATTACKS if attack.name not in NOT_GUARANTEED[BACKENDS[0].name]]
    assert all(attack.layer for attack in stopped)
    assert len({attack.name for attack in stopped} - STOPPED_WITHOUT_A_BOX.keys()) >= 30


def test_every_guarantee_that_a_program_can_break_is_attacked():
    unattacked = set(Guarantee) - {attack.against for attack in ATTACKS}
    assert unattacked == {Guarantee.AGENT_CODE, Guarantee.PRIVATE_TMP, Guarantee.INDEPENDENT_UID}  # tried by the probe
