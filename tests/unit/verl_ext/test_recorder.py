"""A recorded episode replays; a record that was changed diverges at the field that was changed."""

import json
from types import SimpleNamespace

import msgspec
import pytest
from omegaconf import OmegaConf

from recipe.agent_contracts.cold_start.tokenizer import build_tokenizer
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.policy.manifest import read_manifest
from recipe.agent_contracts.policy.registry import Registry
from recipe.agent_contracts.policy.scaffold_lock import lock_of, write_lock
from recipe.agent_contracts.transition.envs.terminal.dataset import row, train_scenarios
from recipe.agent_contracts.transition.envs.terminal.demonstrations import Quality, demonstrate
from recipe.agent_contracts.transition.envs.terminal.env import open_task
from recipe.agent_contracts.transition.episode import Episode
from recipe.agent_contracts.transition.parsers.hermes import HermesParser
from recipe.agent_contracts.transition.rendering import ChatTemplateRenderer
from recipe.agent_contracts.transition.replay import Replayer
from recipe.agent_contracts.transition.termination import Termination
from recipe.agent_contracts.transition.trajectory import episodes
from recipe.agent_contracts.transition.trajectory.context import contexts
from recipe.agent_contracts.verification.terminal import TerminalVerifier
from tests.support import limits
from verl_ext.recorder import EpisodeRecorder

SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0}


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


@pytest.fixture
def recorder(tmp_path, tokenizer):
    rollout = OmegaConf.create(
        {
            **{
                "name": "vllm",
                "dtype": "float32",
                "quantization": None,
                "logprobs_mode": "processed_logprobs",
                "ignore_eos": False,
            },
            **{"temperature": 1.0, "top_p": 1.0, "top_k": -1, "max_model_len": 512},
            **{"prompt_length": 160, "response_length": 320, "multi_turn": {"max_assistant_turns": None}},
        }
    )
    config = SimpleNamespace(
        contract=SimpleNamespace(
            run=SimpleNamespace(folder=str(tmp_path / "run")),
            records=SimpleNamespace(compression="none"),
        ),
        actor_rollout_ref=SimpleNamespace(rollout=rollout),
    )
    write_lock(tmp_path / "run", lock_of("sha256:base", {}))
    return EpisodeRecorder(config, tokenizer)


def publish(run, version, checksum):
    registry = Registry(run)
    publication = registry.build(version, 0, num_ranks=1)
    registry.stage(publication, checksum=checksum, manifest_hash="sha256:m")
    registry.activate(publication)


def opened(tokenizer, session_id=0, decoding="temperature_1"):
    """A scenario, its row as the worker has it, and a fresh episode of it."""
    scenario = train_scenarios(1, seed=3)[0]
    data = {**row(scenario, 0, decoding), "uid": "u", "session_id": session_id, "global_steps": 1}
    env, task = open_task(data["extra_info"]["task"])
    renderer = ChatTemplateRenderer(tokenizer)
    return scenario, data, Episode(env, task.task_id, task.seed, data["prompt"], renderer, HermesParser(), limits())


def play(recorder, tokenizer, quality, version=0):
    import random

    publish(recorder.run, version, f"sha256:{version}")
    scenario, data, episode = opened(tokenizer, session_id=version)
    env, renderer = episode.env, episode.renderer
    for text in demonstrate(scenario, random.Random(0), {quality: 1.0}).turns:
        ids = renderer._encode(text + "<|im_end|>")
        episode.stepped(env.step(episode.sampled(ids, [-0.5] * len(ids), version)))
    state = env.export_state()
    score = TerminalVerifier().score(json.loads(data["reward_model"]["ground_truth"]), state)
    identity = recorder.identity(episode, data, validate=False)
    recorder.write(episode, identity, SAMPLING, state, score.vector())
    return score


@pytest.mark.parametrize("quality", list(Quality))
def test_a_recorded_episode_replays_exactly(recorder, tokenizer, quality):
    score = play(recorder, tokenizer, quality)
    assert bool(score.task_success) is quality.succeeds
    replayer = Replayer(recorder.run)
    assert [divergence for _, divergence in replayer.replay_run()] == [None]
    replayer.close()


@pytest.mark.parametrize(
    ("turn", "changes"),
    [
        (0, {"observation": "another file"}),
        (0, {"state_after": "sha256:0"}),
        (-1, {"reward_components": {"task_success": 0.0}}),
        (-1, {"final_state_hash": "sha256:0"}),
        (0, {"base_snapshot_id": "sha256:0"}),
    ],
)
def test_a_changed_record_diverges_at_what_was_changed(recorder, tokenizer, turn, changes):
    play(recorder, tokenizer, Quality.CORRECT)
    turns = next(episodes(recorder.run))
    turns[turn] = msgspec.structs.replace(turns[turn], **changes)
    replayer = Replayer(recorder.run)
    assert replayer.replay(turns).field == next(iter(changes))
    replayer.close()


def test_contexts_of_a_recorded_episode_are_what_was_sampled_from(recorder, tokenizer):
    play(recorder, tokenizer, Quality.CORRECT)
    turns = next(episodes(recorder.run))
    whole = contexts(turns)
    assert len(turns) > 1
    _, _, fresh = opened(tokenizer)
    assert whole[0] == fresh.prompt_ids
    for before, record, after in zip(whole, turns, whole[1:], strict=False):
        grown = before + record.action_token_ids
        assert after == grown + fresh.renderer.observation(record.observation, fresh.tools)


def test_a_long_observation_is_a_blob_that_replay_compares(recorder, tokenizer, monkeypatch):
    monkeypatch.setattr("verl_ext.recorder.MAX_INLINE_CHARS", 5)
    play(recorder, tokenizer, Quality.CORRECT)
    turns = next(episodes(recorder.run))
    referenced = [record for record in turns if record.observation_ref is not None]
    assert referenced
    assert all(record.observation is None for record in referenced)
    replayer = Replayer(recorder.run)
    assert [divergence for _, divergence in replayer.replay_run()] == [None]
    other = recorder.blobs.put(b"another observation")
    turns[0] = msgspec.structs.replace(turns[0], observation=None, observation_ref=other)
    assert replayer.replay(turns).field == "observation"
    replayer.close()


def test_an_episode_whose_writer_was_killed_replays_as_far_as_it_was_written(recorder, tokenizer):
    play(recorder, tokenizer, Quality.CORRECT)
    turns = next(episodes(recorder.run))
    replayer = Replayer(recorder.run)
    assert replayer.replay(turns[:-1]) is None
    replayer.close()


def test_an_action_that_the_environment_refuses_now_is_a_divergence(recorder, tokenizer):
    play(recorder, tokenizer, Quality.CORRECT)
    turns = next(episodes(recorder.run))
    finished = turns[-1]
    divergence = Replayer(recorder.run).replay([*turns, msgspec.structs.replace(finished, turn=finished.turn + 1)])
    assert (divergence.turn, divergence.field) == (finished.turn + 1, "observation")
    assert "a running episode" in divergence.replayed


def test_a_compressed_run_replays_too(tmp_path, tokenizer, recorder):
    recorder.config.contract.records.compression = "zstd"
    compressed = EpisodeRecorder(recorder.config, tokenizer)
    play(compressed, tokenizer, Quality.CORRECT)
    assert compressed.writer.path.name.endswith(".jsonl.zst")
    replayer = Replayer(compressed.run)
    assert [divergence for _, divergence in replayer.replay_run()] == [None]
    replayer.close()


def test_every_version_has_the_checksum_under_which_it_was_published(recorder, tokenizer):
    play(recorder, tokenizer, Quality.CORRECT, version=0)
    play(recorder, tokenizer, Quality.CORRECT, version=1)
    assert [record.behavior_weight_checksum for record in episodes_by_version(recorder.run)] == ["sha256:0", "sha256:1"]
    manifests = [read_manifest(path) for path in (recorder.run / "manifests").glob("*.json")]
    assert {manifest.weight_checksum for manifest in manifests} == {"sha256:0", "sha256:1"}
    assert {manifest.base_revision for manifest in manifests} == {"sha256:base"}
    assert len({manifest.scaffold_hash for manifest in manifests}) == 1


def test_a_turn_of_a_version_that_was_never_published_is_refused(recorder, tokenizer):
    _, data, episode = opened(tokenizer)
    ids = episode.renderer._encode("x<|im_end|>")
    episode.stepped(episode.env.step(episode.sampled(ids, [-0.5] * len(ids), 7)))
    episode.abort(Termination.SCHEDULER_CANCEL, "stop")
    with pytest.raises(ContractViolation, match="version 7"):
        recorder.write(episode, recorder.identity(episode, data, True), SAMPLING, episode.env.export_state(), None)


def episodes_by_version(run):
    records = [record for turns in episodes(run) for record in turns[:1]]
    return sorted(records, key=lambda record: record.behavior_policy_version)


def test_an_episode_that_failed_before_its_first_token_is_recorded_with_its_error(recorder, tokenizer):
    _, data, episode = opened(tokenizer)
    episode.abort(Termination.INFRA_ABORT, "engine is gone")
    recorder.write(episode, recorder.identity(episode, data, True), SAMPLING, episode.env.export_state(), None)
    (record,) = next(episodes(recorder.run))
    assert record.error == "engine is gone"
    assert record.termination_reason is Termination.INFRA_ABORT
    assert record.reward_components is None
    assert record.action_token_ids == []


def test_a_tempered_sampler_has_no_raw_log_probabilities(recorder, tokenizer):
    SAMPLING_GREEDY = {**SAMPLING, "temperature": 0}
    publish(recorder.run, 0, "sha256:0")
    _, data, episode = opened(tokenizer, decoding="greedy")
    ids = episode.renderer._encode("x<|im_end|>")
    episode.stepped(episode.env.step(episode.sampled(ids, [-0.5] * len(ids), 0)))
    episode.abort(Termination.SCHEDULER_CANCEL, "stop")
    recorder.write(episode, recorder.identity(episode, data, True), SAMPLING_GREEDY, episode.env.export_state(), None)
    (record,) = next(episodes(recorder.run))
    assert record.raw_model_logprobs is None
    assert record.sampler_config == {"temperature": 0.0, "top_p": 1.0, "top_k": None}
