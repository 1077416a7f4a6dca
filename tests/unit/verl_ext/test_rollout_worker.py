"""What the rollout worker relies on in verl and Ray, and which prompts it traces."""

import asyncio
from types import SimpleNamespace

import pytest
from ray.exceptions import RayTaskError
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

from recipe.agent_contracts.errors import ContractViolation, InvalidMeasurement, VerifierFailure
from recipe.agent_contracts.transition.episode import Episode
from recipe.agent_contracts.transition.parsers.hermes import HermesParser
from tests.records import identity
from tests.support import ADD, FINISH, ByteRenderer, CounterEnv, limits
from verl_ext.agent_loop import EPISODE
from verl_ext.rollout_worker import ContractAgentLoopWorkerImpl, MixedEpisode, python_class_of


def test_the_python_class_of_verls_actor_is_still_where_ray_keeps_it():
    assert issubclass(python_class_of(AgentLoopWorkerTQ), AgentLoopWorker)


def test_a_moved_attribute_is_named():
    with pytest.raises(ContractViolation, match="modified_class"):
        python_class_of(object())


@pytest.mark.parametrize("method", ["_run_agent_loop", "_agent_loop_postprocess", "_compute_score"])
def test_the_overridden_methods_still_exist_in_verl(method):
    assert hasattr(python_class_of(AgentLoopWorkerTQ), method)


def worker(backend="mlflow", limit=2):
    made = object.__new__(ContractAgentLoopWorkerImpl)
    made.rollout_config = SimpleNamespace(trace=SimpleNamespace(backend=backend, max_samples_per_step_per_worker=limit))
    made._traced = (-1, set())
    return made


class Recorder:
    """Keeps what it was asked to write."""

    def __init__(self):
        self.written = []
        self.quarantined = []
        self.blobs = SimpleNamespace(put=lambda data: "sha256:state")

    def quarantine(self, episode, identity, final_state, error):
        self.quarantined.append(error)

    def identity(self, episode, row, validate):
        return identity()

    def write(self, episode, identity, sampling_params, final_state, reward):
        self.written.append((episode.error, reward))


def played(first_version, last_version):
    messages = [{"role": "user", "content": "count t"}]
    episode = Episode(CounterEnv(), "t", 0, messages, ByteRenderer(), HermesParser(), limits())
    for ids, version in ((ADD, first_version), (FINISH, last_version)):
        episode.stepped(episode.env.step(episode.sampled(ids, [-0.1] * len(ids), version)))
    made = worker()
    made._recorder = Recorder()
    return made, SimpleNamespace(extra_fields={EPISODE: episode})


def test_an_episode_of_two_policies_is_written_with_both_and_never_scored_or_handed_over():
    made, output = played(3, 4)
    with pytest.raises(MixedEpisode, match=r"found \[3, 4\]"):
        asyncio.run(made._hand_over(output, False, {}, {}))
    ((error, reward),) = made._recorder.written
    assert "policy.lease" in error
    assert reward is None
    assert [type(error) for error in made._recorder.quarantined] == [MixedEpisode]


@pytest.mark.parametrize("kind", [VerifierFailure, InvalidMeasurement])
def test_what_a_reward_worker_raised_is_recorded_as_it_was_raised_there_and_quarantined(kind):
    made, output = played(3, 3)

    async def compute_score(outputs, kwargs):
        assert outputs[0].extra_fields["final_state_hash"] == "sha256:state"
        raise RayTaskError("score", "traceback", kind("verification", "a verdict", "none")).as_instanceof_cause()

    made._compute_score = compute_score
    with pytest.raises(kind):
        asyncio.run(made._hand_over(output, True, {}, {}))
    ((error, reward),) = made._recorder.written
    assert error == f"{kind.__name__}: [verification] expected a verdict, found none"
    assert reward is None
    assert [type(error) for error in made._recorder.quarantined] == [kind]


def test_the_first_prompts_of_each_step_are_traced_with_all_siblings():
    made = worker(limit=2)
    seen = [made._is_traced(1, uid) for uid in ("a", "b", "c", "a", "c")]
    assert seen == [True, True, False, True, False]
    assert made._is_traced(2, "c")


def test_without_a_limit_everything_is_traced_and_without_a_backend_nothing():
    assert all(worker(limit=None)._is_traced(1, str(uid)) for uid in range(9))
    assert not worker(backend=None)._is_traced(1, "a")
