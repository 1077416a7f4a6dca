"""A small recorded run of the terminal environment: one right episode and one that fails."""

import json
import random
from pathlib import Path

import msgspec
import pytest

from recipe.agent_contracts.transition.envs.terminal.dataset import row, train_scenarios
from recipe.agent_contracts.transition.envs.terminal.demonstrations import Quality, demonstrate
from recipe.agent_contracts.transition.envs.terminal.env import open_task
from recipe.agent_contracts.transition.episode import Episode
from recipe.agent_contracts.transition.parsers.hermes import HermesParser
from recipe.agent_contracts.transition.snapshots import BlobStore
from recipe.agent_contracts.transition.trajectory import TrajectoryWriter, TurnRecord
from recipe.agent_contracts.transition.trajectory.context import context_links
from recipe.agent_contracts.transition.trajectory.recording import record_of
from recipe.agent_contracts.verification.terminal import TerminalVerifier
from tests.records import identity
from tests.support import ByteRenderer, limits


def played(blobs: BlobStore, trajectory_id: str, quality: Quality) -> list[TurnRecord]:
    """A scripted episode as records."""
    scenario = train_scenarios(1, seed=3)[0]
    data = row(scenario, 0, "temperature_1")
    env, task = open_task(data["extra_info"]["task"])
    episode = Episode(
        env, task.task_id, task.seed, data["prompt"], ByteRenderer(), HermesParser(), limits(max_prompt_tokens=5000)
    )
    for text in demonstrate(scenario, random.Random(0), {quality: 1.0}).turns:
        ids = [*text.encode(), 0]
        episode.stepped(env.step(episode.sampled(ids, [-0.5] * len(ids), 0)))
    state, grader = env.export_state(), data["reward_model"]["ground_truth"]
    who = identity(
        trajectory_id,
        task_id=task.task_id,
        seed=task.seed,
        env_version=env.env_version,
        task_hash=blobs.put(data["extra_info"]["task"].encode()),
        grader_hash=blobs.put(grader.encode()),
    )
    links = context_links([(turn.prompt_token_ids, turn.token_ids) for turn in episode.turns], trajectory_id)
    records = [
        record_of(
            turn,
            index,
            link,
            who,
            base_state=episode.base_state,
            policy_manifest_hash=None,
            behavior_weight_checksum=None,
            generator_build="test",
            sampler_config={"temperature": 1.0, "top_p": 1.0, "top_k": None},
            raw_model_logprobs=turn.logprobs,
        )
        for index, (turn, link) in enumerate(zip(episode.turns, links, strict=True))
    ]
    records[-1] = msgspec.structs.replace(
        records[-1],
        termination_reason=episode.termination,
        final_state_hash=blobs.put(state),
        reward_components=TerminalVerifier().score(json.loads(grader), state).vector(),
    )
    return records


def write(run: Path, *episodes: list[TurnRecord]) -> None:
    writer = TrajectoryWriter(run / "trajectories", "a")
    for turns in episodes:
        writer.append(turns)
    writer.close()


@pytest.fixture
def recorded(tmp_path: Path) -> tuple[Path, list[list[TurnRecord]]]:
    """A run folder without its part, and its episodes."""
    blobs = BlobStore(tmp_path / "run" / "blobs")
    qualities = {"g_0": Quality.CORRECT, "g_1": next(q for q in Quality if not q.succeeds)}
    return tmp_path / "run", [played(blobs, name, quality) for name, quality in qualities.items()]


@pytest.fixture
def run(recorded: tuple[Path, list[list[TurnRecord]]]) -> Path:
    folder, episodes = recorded
    write(folder, *episodes)
    return folder
