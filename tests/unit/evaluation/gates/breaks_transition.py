"""What breaks the gates of the transition contract: G01, G02, G05, G14, G15. (G03 is broken by an environment.)"""

from __future__ import annotations

from recipe.agent_contracts.transition.termination import Termination
from tests.gated import Parts
from tests.unit.evaluation.gates.breaking import breaks

OTHER = f"sha256:{0:064x}"
NO_VERDICT = {"reward_components": None}


# A replay begins with the same reset, so G02 cannot hold where G01 does not.
@breaks("G01", f"b_1: recorded {OTHER}", also=("G02",))
def another_initial_state(parts: Parts) -> None:
    parts.change_turns("b_1", base_snapshot_id=OTHER)


@breaks("G01", "a_0: recorded", also=("G02",))
def the_task_is_lost(parts: Parts) -> None:
    parts.change_identity("a_0", task_hash=OTHER)


@breaks("G01", "expected one of 1 known tasks, found another", also=("G02",))
def the_task_goes_by_another_name(parts: Parts) -> None:
    parts.change_identity("v2_0", task_id="another")


@breaks("G02", "a_0, turn 0: observation")
def another_observation(parts: Parts) -> None:
    parts.change_turn("a_0", 0, observation="nothing to see")


@breaks("G02", "b_3, turn 1: state_after")
def another_state(parts: Parts) -> None:
    parts.change_turn("b_3", 1, state_after=OTHER)


@breaks("G02", "v0_0, turn 2: reward_components")
def another_reward(parts: Parts) -> None:
    rewarded = parts.episodes["v2_0"][-1].reward_components
    parts.change_turn("v0_0", -1, reward_components=rewarded)


@breaks("G02", "v0_0, turn 2: reward_components")
def another_reward_without_its_state(parts: Parts) -> None:
    another_reward(parts)
    parts.change_turn("v0_0", -1, final_state_hash=None)


@breaks("G02", "v0_0, turn 0: env_version")
def another_environment(parts: Parts) -> None:
    parts.change_identity("v0_0", env_version="terminal-v1")


@breaks("G05", "b_2, turn 1")
def a_log_probability_is_missing(parts: Parts) -> None:
    parts.change_turn("b_2", 1, behavior_logprobs=parts.episodes["b_2"][1].behavior_logprobs[1:])


@breaks("G05", "v0_0, turn 0")
def a_probability_above_1(parts: Parts) -> None:
    parts.change_turn("v0_0", 0, behavior_logprobs=[0.1, *parts.episodes["v0_0"][0].behavior_logprobs[1:]])


@breaks("G05", "a_1, turn 2")
def the_mask_is_short(parts: Parts) -> None:
    parts.change_turn("a_1", 2, action_mask=[1])


@breaks("G14", "a_0 is in no trajectory part")
def a_trained_episode_was_not_recorded(parts: Parts) -> None:
    del parts.episodes["a_0"]


# The environment answers a write without the read before it otherwise.
@breaks("G14", "b_1", also=("G02",))
def a_trained_turn_was_not_recorded(parts: Parts) -> None:
    del parts.episodes["b_1"][0]


@breaks("G14", "b_1")
def an_episode_is_recorded_twice(parts: Parts) -> None:
    parts.episodes["again"] = parts.episodes["b_1"]


@breaks("G14", "a_2")
def a_trained_episode_names_no_family(parts: Parts) -> None:
    parts.change_identity("a_2", family="")


@breaks("G14", "a_2")
def a_trained_episode_belongs_to_another_group(parts: Parts) -> None:
    parts.change_identity("a_2", group_id="other")


@breaks("G14", "a_2")
def a_held_out_episode_was_trained_on(parts: Parts) -> None:
    parts.change_identity("a_2", partition="val", decoding="temperature_1")


@breaks("G14", "b_0")
def the_update_counts_other_tokens(parts: Parts) -> None:
    parts.change_row(2, 0, num_action_tokens=parts.updates[1].rows[0].num_action_tokens + 1)


@breaks("G15", "c_2")
def a_censored_episode_has_a_reward(parts: Parts) -> None:
    parts.change_turn("c_2", -1, reward_components=parts.score("c_2"))  # the right one, or G02 fails too


@breaks("G15", "a_1")
def a_censored_episode_was_trained_on(parts: Parts) -> None:
    parts.change_turn("a_1", -1, termination_reason=Termination.TOOL_TIMEOUT, **NO_VERDICT)


@breaks("G15", "v2_0")
def an_episode_ends_before_its_end(parts: Parts) -> None:
    parts.change_turn("v2_0", 0, termination_reason=Termination.AGENT_FINISH)


@breaks("G15", "b_1 has no termination code and was trained on")
def an_episode_without_an_end_was_trained_on(parts: Parts) -> None:
    parts.change_turn("b_1", -1, termination_reason=None, final_state_hash=None, **NO_VERDICT)


@breaks("G15", "v2_0 has no termination code and a reward")
def an_episode_without_an_end_has_a_reward(parts: Parts) -> None:
    parts.change_turn("v2_0", -1, termination_reason=None)
