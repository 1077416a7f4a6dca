"""The engine's side of a publication, over verl's real transfer: what it serves, acknowledges and refuses."""

import asyncio
import threading
from types import SimpleNamespace

import pytest
import torch

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.policy.fingerprint import fingerprint
from recipe.agent_contracts.policy.registry import Part, Registry
from recipe.agent_contracts.policy.scaffold_lock import lock_of, write_lock
from tests.policies import scaffold as locked_scaffold
from tests.serving import RECEIVED, Model, load_into
from tests.support import case
from verl_ext import scaffold
from verl_ext.weight_publication import ContractWorkerExtension
from verl_ext.weight_sender import _sealed


class Runner:
    """vLLM's model runner with a loader that may be wrong."""

    def __init__(self, loader):
        self.model, self.loader, self.num_reloads = Model(packed=True), loader, 0
        self.model.config = SimpleNamespace(tie_word_embeddings=False)
        parallel = SimpleNamespace(tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_rank=0, world_size=1)
        model_config = SimpleNamespace(dtype=torch.float32, quantization=None, logprobs_mode="processed_logprobs")
        self.vllm_config = SimpleNamespace(parallel_config=parallel, quant_config=None, model_config=model_config)

    def reload_weights(self, weights_iterator):
        self.num_reloads += 1
        self.loader(self.model, dict(weights_iterator))


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv(scaffold.RUN_FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv("VERL_REPLICA_RANK", "0")
    write_lock(tmp_path, lock_of("sha256:b", {"train": [locked_scaffold(engine_build=scaffold.engine_build("vllm"))]}))
    return tmp_path


def worker(run, loader=load_into):
    made = object.__new__(ContractWorkerExtension)
    made.model_runner, made.rank = Runner(loader), 0
    made._get_zmq_handle = lambda: f"ipc://{run}/weights.sock"
    return made


def publish(run, engine, stream):
    """Send a stream to the engine as the trainer's process does, and return what the engine raised."""
    from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightSender

    raised = []

    def receive():
        try:
            engine.update_weights_from_ipc(use_shm=True)
        except ContractViolation as error:
            raised.append(error)

    thread = threading.Thread(target=receive)
    thread.start()
    sender = BucketedWeightSender(engine._get_zmq_handle(), bucket_size_mb=1, use_shm=True)
    asyncio.run(sender.async_send_weights(stream))
    thread.join()
    return raised


def sealed(version=1, weights=RECEIVED):
    return _sealed(weights.items(), {}, version, Part.FULL)


def test_a_right_load_is_acknowledged_with_what_was_found_in_use(run):
    publication = Registry(run).build(1, 0, num_ranks=1)
    assert publish(run, worker(run), sealed()) == []
    (found,) = Registry(run).acknowledgements(publication)
    assert found.received_checksum == fingerprint(RECEIVED.items())
    assert (found.num_compared, found.not_compared) == (len(RECEIVED), None)
    Registry(run).require_acknowledged(publication, Part.FULL, fingerprint(RECEIVED.items()))


async def flipped():
    async for name, tensor in sealed():
        yield name, tensor + 1 if name == "model.norm.weight" else tensor


async def dropped():
    async for name, tensor in sealed():
        if name != "model.norm.weight":
            yield name, tensor


async def unsealed():
    for name, tensor in RECEIVED.items():
        yield name, tensor


@pytest.mark.parametrize(
    ("stream", "words"),
    [(flipped, "different: model.norm.weight"), (dropped, "missing: model.norm.weight"), (unsealed, "an envelope")],
)
def test_what_was_not_sent_so_is_never_loaded(run, stream, words):
    engine = worker(run)
    publication = Registry(run).build(1, 0, num_ranks=1)
    (error,) = publish(run, engine, stream())
    assert words in str(error)
    assert engine.model_runner.num_reloads == 0
    assert Registry(run).acknowledgements(publication) == []


def skip(name):
    return lambda model, weights: load_into(model, {key: value for key, value in weights.items() if key != name})


@pytest.mark.parametrize("name", ["model.norm.weight", "model.k_proj.weight", "model.embed_tokens.weight"])
def test_a_tensor_that_the_loader_skips_is_not_acknowledged(run, name):
    """A digest of what was sent does not see it: everything arrived."""
    publication = Registry(run).build(1, 0, num_ranks=1)
    (error,) = publish(run, worker(run, skip(name)), sealed())
    assert name in str(error)
    assert Registry(run).acknowledgements(publication) == []


def test_an_engine_that_is_not_the_locked_one_loads_nothing_and_the_sender_is_not_left_waiting(run):
    engine = worker(run)
    engine.model_runner.vllm_config.model_config.logprobs_mode = "raw_logprobs"
    (error,) = publish(run, engine, sealed())
    assert "raw_logprobs" in str(error)
    assert engine.model_runner.num_reloads == 0


@pytest.mark.parametrize(("parallel", "why"), [(2, "the rank holds a part of each tensor"), (1, None)])
def test_what_cannot_be_compared_is_said(run, parallel, why):
    engine = worker(run)
    load_into(engine.model_runner.model, RECEIVED)
    engine.model_runner.vllm_config.parallel_config.tensor_parallel_size = parallel
    assert engine._compare_active(engine.model_runner.model, RECEIVED)[1] == why


def test_an_adapter_that_the_engine_does_not_list_is_refused():
    """Case H06: every sync ships the base alone, and the run looks like growing staleness."""
    given = case("H06")["input"]
    engine = object.__new__(ContractWorkerExtension)
    engine.list_loras = lambda: set(given["engine_list_loras"])
    with pytest.raises(ContractViolation, match=r"publication\.active"):
        engine._compare_adapter({"r": 1, "lora_alpha": 1})


def test_the_base_alone_is_not_the_version_that_the_adapter_makes():
    """Case H06: a payload of base weights has another checksum than the policy that was trained."""
    given, right = case("H06")["input"], case("H06")["check"]
    base, scale = torch.tensor(given["base_W"], dtype=torch.float32), given["scale"]
    merged = base + scale * torch.tensor(given["lora_B"]) @ torch.tensor(given["lora_A"])
    assert torch.allclose(merged, torch.tensor(right["effective_W"], dtype=torch.float32))
    (name,) = given["sync_payload_names"]
    assert fingerprint([(name, base)]) != fingerprint([(name, merged)])
