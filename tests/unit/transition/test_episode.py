"""Token bookkeeping and termination codes of an episode."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.transition.episode import Episode
from recipe.agent_contracts.transition.observations import ObservationCut, ObservationLimit
from recipe.agent_contracts.transition.parsers.hermes import HermesParser
from recipe.agent_contracts.transition.termination import Termination
from tests.support import ADD, FINISH, NONSENSE, ByteRenderer, CounterEnv, case, limits


def start(**changes):
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "count t"}]
    return Episode(CounterEnv(), "t", 0, messages, ByteRenderer(), HermesParser(), limits(**changes))


def take(episode, ids, version=0):
    action = episode.sampled(ids, [-0.5] * len(ids), version)
    if action is not None:
        episode.stepped(episode.env.step(action))
    return action


def test_an_invalid_turn_costs_a_step_changes_no_state_and_goes_on():
    episode = start()
    before = episode.base_state
    action = take(episode, NONSENSE)
    assert action.kind == "invalid"
    assert episode.termination is None
    assert episode.turns[0].state_after == before
    assert len(episode.turns) == 1


def test_finish_ends_the_episode():
    episode = start()
    take(episode, ADD)
    take(episode, FINISH)
    assert episode.termination is Termination.AGENT_FINISH


def test_the_step_budget_ends_in_a_terminal_outcome():
    episode = start(step_budget=2)
    take(episode, ADD)
    take(episode, ADD)
    assert episode.termination is Termination.TASK_BUDGET_EXHAUSTED
    assert episode.termination.is_outcome


def test_a_harness_cap_below_the_step_budget_is_a_truncation():
    episode = start(step_budget=8, max_steps=1)
    take(episode, ADD)
    assert episode.termination is Termination.MAX_STEP_TRUNCATION
    assert not episode.termination.is_outcome


def test_a_turn_cut_by_the_token_budget_is_an_outcome_and_no_action():
    episode = start(token_budget=5)
    assert episode.max_new_tokens == 5
    assert take(episode, ADD[:5]) is None
    assert episode.termination is Termination.TASK_BUDGET_EXHAUSTED
    assert episode.env.export_state() == b'{"value":0}'


@pytest.mark.parametrize("undeclared", [{"max_response_tokens": 5}, {"max_context_tokens": len("count t") + 5}])
def test_a_turn_cut_by_a_limit_the_task_did_not_declare_is_censored(undeclared):
    episode = start(**undeclared)
    assert episode.max_new_tokens == 5
    assert take(episode, ADD[:5]) is None
    assert episode.termination is Termination.MAX_TOKEN_TRUNCATION


def test_an_observation_that_does_not_fit_ends_the_episode_without_being_appended():
    episode = start(token_budget=len(ADD) + 1)
    take(episode, ADD)
    assert episode.termination is Termination.TASK_BUDGET_EXHAUSTED
    assert episode.response_ids == ADD


def test_a_prompt_over_its_limit_is_refused_before_a_token_is_sampled():
    with pytest.raises(ContractViolation, match="at most 3 tokens"):
        start(max_prompt_tokens=3)


def test_a_prompt_of_another_environment_version_is_refused():
    messages = [{"role": "user", "content": "another wording"}]
    with pytest.raises(ContractViolation, match=r"transition\.prompt"):
        Episode(CounterEnv(), "t", 0, messages, ByteRenderer(), HermesParser(), limits())


@pytest.mark.parametrize("logprobs", [[], [-0.1], [-0.1, math.nan], [-math.inf, -0.1]])
def test_missing_unaligned_or_infinite_log_probabilities_are_refused(logprobs):
    with pytest.raises(ContractViolation, match=r"transition\.logprobs"):
        start().sampled([65, 0], logprobs, 0)


def test_an_abort_is_never_an_outcome():
    episode = start()
    episode.abort(Termination.INFRA_ABORT, "the engine is gone")
    assert not episode.termination.is_outcome
    with pytest.raises(AssertionError):
        episode.abort(Termination.AGENT_FINISH, "no")


def test_a_long_observation_is_cut_as_declared_for_the_model_only():
    messages = [{"role": "user", "content": "count t"}]
    limit = ObservationLimit(2, "end")
    episode = Episode(WordyEnv(), "t", 0, messages, ByteRenderer(), HermesParser(), limits(), limit)
    take(episode, ADD)
    shown = "[truncated: 2 of 9 characters]\nly"
    assert bytes(episode.response_ids[len(ADD) :]).decode() == shown
    assert episode.turns[0].observation == "endlessly"
    assert episode.turns[0].observation_cut == ObservationCut(2, "end", 9)
    take(episode, FINISH)
    assert episode.turns[1].observation_cut is None


class WordyEnv(CounterEnv):
    def step(self, action):
        return msgspec.structs.replace(super().step(action), observation="endlessly")


class ToyRenderer(ByteRenderer):
    """Token 12 ends a turn; the tool's message is fixed ids."""

    def __init__(self, toy):
        self.toy = toy
        self.end_of_turn_id = toy["sampled_ids"][-1]

    def initial(self, messages, tools):
        return list(self.toy["prompt_ids"])

    def observation(self, text, tools):
        return list(self.toy["tool_ids"])

    def decode_turn(self, token_ids):
        return self.toy["decoded"]


def test_context_keeps_the_sampled_ids_although_they_re_encode_differently():
    h01 = case("H01")
    toy, right = h01["input"], h01["check"]
    messages = [{"role": "user", "content": "count t"}]
    episode = Episode(CounterEnv(), "t", 0, messages, ToyRenderer(toy), HermesParser(), limits())
    action = episode.sampled(toy["sampled_ids"], toy["engine_logprobs"], 0)
    episode.stepped(episode.env.step(action))
    assert episode.context_ids == right["next_prompt_ids"] != right["must_not_equal"]
    assert episode.response_ids == right["response_ids"]
    assert episode.response_mask == right["response_mask"]
    kept = [p for p, m in zip(episode.response_logprobs, episode.response_mask, strict=True) if m]
    assert kept == right["masked_logprobs"]


def test_the_loss_sees_exactly_the_sampled_tokens():
    """Case H03: the logit at position p predicts the token at p + 1, so a masked token t pairs with logit t - 1."""
    h03 = case("H03")
    prompt, right = h03["input"]["prompt_ids"], h03["check"]
    ids, mask = [], []
    for turn in h03["input"]["turns"]:
        ids += turn["ids"]
        mask += [int(turn["by"] == "model")] * len(turn["ids"])
    assert mask == right["response_mask"]
    pairs = [[len(prompt) + i - 1, token] for i, token in enumerate(ids) if mask[i]]
    assert pairs == right["loss_pairs_right"]
    assert not {token for _, token in pairs} & set(right["tool_ids_never_targets"])


@given(st.lists(st.sampled_from([ADD, NONSENSE, FINISH, ADD[:7]]), min_size=1, max_size=10), st.integers(1, 400))
def test_ids_mask_and_log_probabilities_stay_aligned_whatever_is_sampled(turns, budget):
    episode = start(token_budget=budget)
    for ids in turns:
        if episode.termination is not None:
            break
        take(episode, ids[: episode.max_new_tokens])
    assert len(episode.response_ids) == len(episode.response_mask) == len(episode.response_logprobs)
    assert len(episode.response_ids) <= budget
    sampled = [token for turn in episode.turns for token in turn.token_ids]
    masked = [t for t, m in zip(episode.response_ids, episode.response_mask, strict=True) if m]
    assert masked == sampled
    for turn in episode.turns:
        prefix = turn.prompt_token_ids
        assert episode.context_ids[: len(prefix)] == prefix


class GenerousEnv(CounterEnv):
    """Its tool praises every call and tells the answer."""

    def tools(self):
        return [msgspec.structs.replace(tool, is_oracle=tool.name == "add") for tool in super().tools()]

    def step(self, action):
        return msgspec.structs.replace(super().step(action), tool_reward=0.75)


def test_what_a_tool_says_of_itself_is_kept_with_its_turn_and_an_oracle_is_named_to_the_manifest_alone():
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "count t"}]
    episode = Episode(GenerousEnv(), "t", 0, messages, ByteRenderer(), HermesParser(), limits())
    take(episode, ADD)
    assert episode.turns[0].tool_reward == 0.75
    assert episode.oracle_tools == ["add"]
    assert episode.tools == start().tools, "the model sees the same schemas"
