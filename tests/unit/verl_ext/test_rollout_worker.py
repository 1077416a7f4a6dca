"""What the rollout worker relies on in verl and Ray, and which prompts it traces."""

from types import SimpleNamespace

import pytest
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

from recipe.agent_contracts.errors import ContractViolation
from verl_ext.rollout_worker import ContractAgentLoopWorkerImpl, python_class_of


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


def test_the_first_prompts_of_each_step_are_traced_with_all_siblings():
    made = worker(limit=2)
    seen = [made._is_traced(1, uid) for uid in ("a", "b", "c", "a", "c")]
    assert seen == [True, True, False, True, False]
    assert made._is_traced(2, "c")


def test_without_a_limit_everything_is_traced_and_without_a_backend_nothing():
    assert all(worker(limit=None)._is_traced(1, str(uid)) for uid in range(9))
    assert not worker(backend=None)._is_traced(1, "a")
