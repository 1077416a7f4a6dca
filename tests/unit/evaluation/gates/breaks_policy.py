"""What breaks the gates of policy identity: G04, G06, G07, G08, G09."""

from __future__ import annotations

import math

import msgspec

from recipe.agent_contracts.evaluation.gates.base import Status
from tests.gated import GREEDY, SAMPLED, SIBLINGS, Parts, policy_of, sampled_by, weights_of
from tests.reported import Rank
from tests.unit.evaluation.gates.breaking import breaks

LONGER = msgspec.structs.replace(SAMPLED, step_budget=9)


@breaks("G04", "v0_0, turn 0")
def an_evaluation_had_a_larger_budget(parts: Parts) -> None:
    parts.manifests.append(policy_of(0, LONGER))
    parts.change_turns("v0_0", policy_manifest_hash=policy_of(0, LONGER).manifest_hash)


@breaks("G04", "a_0, turn 0")
def a_group_was_sampled_greedily(parts: Parts) -> None:
    for index in SIBLINGS:
        parts.episodes[f"a_{index}"] = sampled_by(parts.episodes[f"a_{index}"], 0, GREEDY)


@breaks("G04", "v2_0, turn 1")
def a_turn_names_no_manifest(parts: Parts) -> None:
    parts.change_turn("v2_0", 1, policy_manifest_hash=None)


@breaks("G04", "b_0, turn 0")
def a_group_names_the_manifest_of_other_weights(parts: Parts) -> None:
    for index in SIBLINGS:
        parts.change_turns(f"b_{index}", policy_manifest_hash=policy_of(0, SAMPLED).manifest_hash)


@breaks("G04", "v2_0, turn 0")
def a_manifest_is_lost(parts: Parts) -> None:
    parts.lost.append(f"manifests/{policy_of(2, SAMPLED).manifest_hash.removeprefix('sha256:')}.json")


@breaks("G04", "nobody attested as reward")
def the_reward_process_did_not_attest(parts: Parts) -> None:
    del parts.attested["reward"]


@breaks("G04", "rollout (process")
def the_rollout_worker_attested_another_scaffold(parts: Parts) -> None:
    parts.attested["rollout"] = {"train": [LONGER.scaffold_hash]}


@breaks("G04", "evaluator (process")
def the_evaluator_attested_the_scaffold_of_another_decoding(parts: Parts) -> None:
    parts.attested["evaluator"] = {"heldout/greedy": [SAMPLED.scaffold_hash]}


@breaks("G04", "scaffold.json", status=Status.NOT_MEASURED)
def the_lock_is_lost(parts: Parts) -> None:
    parts.lost.append("scaffold.json")


@breaks("G06", "experiment.yaml")
def no_proximal_policy_is_declared(parts: Parts) -> None:
    parts.contract["update__proximal_policy"] = None


@breaks("G06", "step 2")
def the_proximal_policy_is_not_the_current_one(parts: Parts) -> None:
    parts.metrics[2]["actor/proximal_gap_max"] = 0.01


@breaks("G06", "step 1")
def the_gap_is_not_a_number(parts: Parts) -> None:
    parts.metrics[1]["actor/proximal_gap_max"] = math.nan


@breaks("G06", "is not logged for every step", status=Status.NOT_MEASURED)
def a_gap_was_not_logged(parts: Parts) -> None:
    del parts.metrics[2]["actor/proximal_gap_max"]


@breaks("G07", "group a")
def the_weights_were_switched_inside_a_turn(parts: Parts) -> None:
    parts.change_turn("a_1", 1, behavior_policy_version_end=1)


@breaks("G07", "group b")
def a_sibling_was_sampled_by_another_version(parts: Parts) -> None:
    parts.episodes["b_3"] = sampled_by(parts.episodes["b_3"], 0)
    parts.contract["rollout__max_version_lag"] = 1  # or G10 fails too


@breaks("G08", "version 1 on replica 0")
def a_rank_was_silent(parts: Parts) -> None:
    parts.ranks[1] = parts.ranks[1][:1]


@breaks("G08", "version 1 on replica 0")
def a_rank_received_other_weights(parts: Parts) -> None:
    parts.ranks[1][1] = Rank(1, "sha256:other")


@breaks("G08", "version 2 on replica 0")
def a_rank_did_not_compare_what_it_uses(parts: Parts) -> None:
    parts.ranks[2][0] = Rank(0, weights_of(2), 2, "no known place for lm_head")


@breaks("G08", "v2_0, turn 0")
def another_version_2_was_published(parts: Parts) -> None:
    parts.served[2] = "sha256:other"
    parts.ranks[2] = [Rank(rank.rank, "sha256:other") for rank in parts.ranks[2]]


# The manifest that these turns name is one of the weights, too.
@breaks("G08", "v2_0, turn 0", also=("G04",))
def a_turn_names_other_weights(parts: Parts) -> None:
    parts.change_turns("v2_0", behavior_weight_checksum="sha256:other")


# A manifest is of a version.
@breaks("G08", "v2_0, turn 0", also=("G04",))
def a_turn_names_no_version(parts: Parts) -> None:
    parts.change_turns("v2_0", behavior_policy_version=None)


@breaks("G08", "policies.sqlite is missing", status=Status.NOT_MEASURED)
def the_registry_is_lost(parts: Parts) -> None:
    parts.lost.append("policies.sqlite")


@breaks("G09", "consistency/abs_p95")
def generator_and_trainer_disagree(parts: Parts) -> None:
    parts.metrics[1]["consistency/abs_p95"] = 1e-3


@breaks("G09", "consistency/k3")
def the_divergence_is_large_and_negative(parts: Parts) -> None:
    parts.metrics[2]["consistency/k3"] = -1e-3


@breaks("G09", "consistency/abs_max")
def the_disagreement_is_not_a_number(parts: Parts) -> None:
    parts.metrics[1]["consistency/abs_max"] = math.nan


@breaks("G09", "step 2 logged no", status=Status.NOT_MEASURED)
def a_step_was_not_compared(parts: Parts) -> None:
    del parts.metrics[2]["consistency/k3"]


@breaks("G09", "preregisters no tolerance", status=Status.NOT_MEASURED)
def no_tolerance_is_declared(parts: Parts) -> None:
    parts.contract["consistency__max_k3"] = None
