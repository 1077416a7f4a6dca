"""The server's labels of a turn, over a scripted engine: what a switch inside it looks like."""

import asyncio
from types import SimpleNamespace

import pytest
from verl.workers.rollout.replica import get_rollout_replica_class
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer

import verl_ext.rollouts  # noqa: F401  (registers)
from verl_ext.rollout_server import ContractHttpServer, ContractReplica


class Engine:
    """Yields one output; `switch` is called while it generates."""

    def __init__(self, switch):
        self.switch = switch

    async def generate(self, **request):
        self.switch()
        yield SimpleNamespace(outputs=[], request=request)


def server(version, switch=lambda made: None):
    made = object.__new__(ContractHttpServer)
    made.global_steps, made.engine, made._began_with = version, Engine(lambda: switch(made)), {}
    made._submission_paused, made._rejecting, made._admitting, made._resume_event = False, False, 0, asyncio.Event()
    made._resume_event.set()
    made._disaggregation_role, made.replica_rank = "null", 0
    made.config = SimpleNamespace(max_model_len=64, full_determinism=False, get=lambda key, default: default)
    made.model_config = SimpleNamespace(processor=None, lora_rank=0, lora={})
    return made


def labels(made):
    sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "max_tokens": 4, "logprobs": True}
    output = asyncio.run(made.generate([1, 2], sampling, "r"))
    assert made._began_with == {}
    return output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]


def to(version):
    def switch(made):
        made.global_steps = version

    return switch


def test_verl_finds_our_server_for_vllm():
    assert get_rollout_replica_class("vllm") is ContractReplica


@pytest.mark.parametrize("version", [0, 3])
def test_a_turn_without_a_switch_has_one_label(version):
    assert labels(server(version)) == (version, version)


def test_a_switch_inside_a_turn_is_seen_where_stock_verl_has_the_new_label_alone():
    assert labels(server(0, switch=to(1))) == (0, 1)
    stock = server(0, switch=to(1))
    output = asyncio.run(vLLMHttpServer.generate(stock, [1, 2], {"max_tokens": 4, "temperature": 1.0}, "r"))
    assert output.extra_fields == {"global_steps": 1}


def test_a_request_that_waited_for_a_switch_begins_with_the_new_weights():
    made = server(0)
    made._submission_paused = True
    made._resume_event.clear()

    async def play():
        sampling = {"temperature": 1.0, "max_tokens": 4}
        waiting = asyncio.create_task(made.generate([1, 2], sampling, "r"))
        await asyncio.sleep(0.01)
        made.global_steps, made._submission_paused = 1, False
        made._resume_event.set()
        return await waiting

    output = asyncio.run(play())
    assert (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]) == (1, 1)
