"""ContractAgentLoop against a scripted server: what each kind of failure becomes."""

import asyncio
import time
from types import SimpleNamespace

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from recipe.agent_contracts import domains
from recipe.agent_contracts.cold_start.tokenizer import build_tokenizer
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.transition.envs.terminal.dataset import train_rows
from recipe.agent_contracts.transition.envs.terminal.env import open_task
from recipe.agent_contracts.transition.rendering import ChatTemplateRenderer
from recipe.agent_contracts.transition.termination import Termination
from verl_ext.agent_loop import EPISODE, ContractAgentLoop, in_own_thread

FINISH = '<tool_call>\n{"name": "finish", "arguments": {}}\n</tool_call>'


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


@pytest.fixture(scope="module")
def config():
    overrides = ["platform=cpu", "actor_rollout_ref.model.path=x", "actor_rollout_ref.model.tokenizer_path=x"]
    overrides += ["data.train_files=x", "data.val_files=x", "contract.environment.tool_timeout_seconds=0.2"]
    with initialize_config_module("recipe.agent_contracts.config", version_base=None):
        composed = compose("agent_contracts", overrides=overrides)
    return OmegaConf.create(OmegaConf.to_container(composed, resolve=True))


class ScriptedServer:
    """Answers each request with the next turn's ids; an exception in the script is raised."""

    def __init__(self, tokenizer, turns, logprob=-0.5, version=3):
        self.tokenizer, self.turns, self.logprob = tokenizer, list(turns), logprob
        self.versions = iter(version if isinstance(version, list) else [version] * len(turns))
        self.requests = []

    async def generate(self, request_id, *, prompt_ids, sampling_params):
        self.requests.append((request_id, prompt_ids, sampling_params))
        turn = self.turns.pop(0)
        if isinstance(turn, Exception):
            raise turn
        ids = self.tokenizer(turn + "<|im_end|>", add_special_tokens=False)["input_ids"]
        ids = ids[: sampling_params["max_tokens"]]
        logprobs = None if self.logprob is None else [self.logprob] * len(ids)
        label = next(self.versions)
        first, last = label if isinstance(label, tuple) else (label, label)
        labels = {"min_global_steps": first, "max_global_steps": last}
        return SimpleNamespace(token_ids=ids, log_probs=logprobs, extra_fields=labels)


def play(config, tokenizer, turns, row=None, **server):
    scripted = ScriptedServer(tokenizer, turns, **server)
    loop = ContractAgentLoop(
        trainer_config=DictConfigWrap(config),
        server_manager=scripted,
        tokenizer=tokenizer,
        processor=None,
        dataset_cls=None,
        data_config=DictConfigWrap(config.data),
        hf_model_type="qwen2",
    )
    row = row or train_rows(1, seed=1)[0]
    output = asyncio.run(loop.run({"temperature": 1.0}, raw_prompt=row["prompt"], **row))
    return output, output.extra_fields[EPISODE], scripted


def test_a_finished_episode_has_exact_ids_mask_and_versions(config, tokenizer):
    output, episode, server = play(config, tokenizer, ["nonsense", FINISH])
    assert episode.termination is Termination.AGENT_FINISH
    assert [turn.action.kind for turn in episode.turns] == ["invalid", "finish"]
    assert len(output.response_ids) == len(output.response_mask) == len(output.response_logprobs)
    sampled = [t for t, m in zip(output.response_ids, output.response_mask, strict=True) if m]
    assert sampled == [token for turn in episode.turns for token in turn.token_ids]
    assert (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]) == (3, 3)
    assert server.requests[1][1] == output.prompt_ids + output.response_ids[: -len(episode.turns[1].token_ids)]
    assert len({request_id for request_id, _, _ in server.requests}) == 1


def test_parser_and_observation_limit_are_those_of_the_experiment(config, tokenizer):
    declared = OmegaConf.merge(
        config,
        {
            "contract": {
                "policy": {"parser": "glm-strict-v1"},
                "environment": {"max_observation_chars": 2, "observation_keeps": "end"},
            }
        },
    )
    _, episode, _ = play(declared, tokenizer, ["<tool_call>list_files</tool_call>", "<tool_call>finish</tool_call>"])
    assert [turn.action.name for turn in episode.turns] == ["list_files", "finish"]
    assert episode.turns[0].observation_cut.max_chars == 2
    assert episode.turns[0].observation_cut.keeps == "end"


def test_an_episode_that_is_refused_asks_the_server_for_nothing(config, tokenizer, monkeypatch):
    def refuse(episode):
        raise ContractViolation("policy.scaffold", "the locked scaffold", episode.tools)

    monkeypatch.setattr(ContractAgentLoop, "before_sampling", staticmethod(refuse))
    monkeypatch.setattr(ScriptedServer, "generate", None)
    with pytest.raises(ContractViolation, match="locked scaffold"):
        play(config, tokenizer, [FINISH])


def test_version_zero_is_kept(config, tokenizer):
    """verl 0.9.1 tests versions by truthiness in places, which loses 0."""
    output, _, _ = play(config, tokenizer, [FINISH], version=0)
    assert output.extra_fields["min_global_steps"] == 0


@pytest.mark.parametrize(
    ("version", "versions"),
    [([3, 3], [3]), ([3, 4], [3, 4]), ([(3, 4), 4], [3, 4]), ([0, (0, 1)], [0, 1]), ([(0, 0), (0, 0)], [0])],
    ids=str,
)
def test_a_switch_between_turns_or_inside_one_makes_the_episode_mixed(config, tokenizer, version, versions):
    """verl 0.9.1 keeps the end label only: a turn that began on version 3 would pass for version 4."""
    output, episode, _ = play(config, tokenizer, ["nonsense", FINISH], version=version)
    assert episode.policy_versions == versions
    labels = (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"])
    assert labels == (versions[0], versions[-1])


def test_tokens_without_a_version_label_are_censored(config, tokenizer):
    _, episode, _ = play(config, tokenizer, [FINISH], version=None)
    assert episode.termination is Termination.INFRA_ABORT
    assert "policy.lease" in episode.error


def test_the_server_is_never_asked_for_more_than_the_episode_has_left(config, tokenizer):
    _, episode, server = play(config, tokenizer, ["nonsense"] * 9)
    budget = episode.limits.token_budget
    assert episode.termination is Termination.TASK_BUDGET_EXHAUSTED
    for _, prompt_ids, params in server.requests:
        assert params["max_tokens"] == budget - (len(prompt_ids) - len(episode.prompt_ids))


def test_an_engine_failure_is_censored_with_its_message(config, tokenizer):
    output, episode, _ = play(config, tokenizer, [RuntimeError("engine is gone")])
    assert episode.termination is Termination.INFRA_ABORT
    assert "engine is gone" in episode.error
    assert output.reward_score is None


def test_missing_log_probabilities_are_censored(config, tokenizer):
    _, episode, _ = play(config, tokenizer, [FINISH], logprob=None)
    assert episode.termination is Termination.INFRA_ABORT
    assert "transition.logprobs" in episode.error


class RaisingEnv:
    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def step(self, action):
        raise OSError("disk full")


class HangingEnv(RaisingEnv):
    def step(self, action):
        time.sleep(1.0)
        return self.inner.step(action)


def with_env(monkeypatch, wrapper):
    def open_wrapped(task_json):
        env, task = open_task(task_json)
        return wrapper(env), task

    monkeypatch.setattr(domains, "load", lambda path: open_wrapped)


def test_a_tool_that_raises_is_censored_and_never_reward_0(monkeypatch, config, tokenizer):
    with_env(monkeypatch, RaisingEnv)
    output, episode, _ = play(config, tokenizer, [FINISH])
    assert episode.termination is Termination.INFRA_ABORT
    assert "disk full" in episode.error
    assert output.reward_score is None


def test_a_tool_that_hangs_past_its_limit_is_a_tool_timeout(monkeypatch, config, tokenizer):
    with_env(monkeypatch, HangingEnv)
    output, episode, _ = play(config, tokenizer, [FINISH])
    assert episode.termination is Termination.TOOL_TIMEOUT
    assert not episode.termination.is_outcome
    assert output.reward_score is None


def test_hanging_tools_do_not_make_other_episodes_miss_their_limit():
    """More hanging steps at once than a default thread pool has workers."""

    def hang(action):
        time.sleep(1.5)

    async def play_beside():
        hanging = [asyncio.wait_for(in_own_thread(hang, None), timeout=1.0) for _ in range(64)]
        waiting = asyncio.gather(*hanging, return_exceptions=True)
        await asyncio.sleep(0.05)
        answered = await asyncio.wait_for(in_own_thread(lambda action: "answer", None), timeout=0.9)
        return answered, await waiting

    answered, hung = asyncio.run(play_beside())
    assert answered == "answer"
    assert all(isinstance(error, TimeoutError) for error in hung)


def test_our_rendering_agrees_with_verls_own_token_builder(tokenizer):
    """Both append to sampled ids; a template change that parts them must be seen."""
    row = train_rows(1, seed=1)[0]
    env, task = open_task(row["extra_info"]["task"])
    env.reset(task.task_id, 0)
    tools = [tool.as_openai() for tool in env.tools()]
    ours = ChatTemplateRenderer(tokenizer)
    builder = create_continuous_token_builder(tokenizer, hf_model_type="qwen2")
    prompt = ours.initial(row["prompt"], tools)
    assert list(builder.build_initial_tokens(row["prompt"], tools=tools)) == prompt
    turn = tokenizer(FINISH + "<|im_end|>", add_special_tokens=False)["input_ids"]
    before = [*row["prompt"], {"role": "assistant", "content": FINISH}]
    after = [*before, {"role": "tool", "content": "port=80"}]
    merged = builder.merge_context_tokens(before, after, prompt + turn)
    assert list(merged.token_ids) == prompt + turn + ours.observation("port=80", tools)
