"""A publication over verl's real bucketed transfer: what the trainer digests is what the engine's side digests."""

import asyncio
import threading
from types import SimpleNamespace

import pytest
import torch
from verl.workers.rollout.base import get_rollout_class
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver, BucketedWeightSender

import verl_ext.rollouts  # noqa: F401  (registers)
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.policy.fingerprint import fingerprint
from recipe.agent_contracts.policy.manifest import read_manifest
from recipe.agent_contracts.policy.publication import Arrival
from recipe.agent_contracts.policy.registry import Part, Registry, State, lora_checksum
from recipe.agent_contracts.policy.scaffold_lock import lock_of
from tests.policies import scaffold
from verl_ext.weight_sender import ContractServerAdapter, _adapter_revision, _part, _sealed

WEIGHTS = {
    "large": torch.randn(500, 400, generator=torch.Generator().manual_seed(1)),
    "strided": torch.randn(40, 30, generator=torch.Generator().manual_seed(2)).t(),
    "half": torch.randn(33, generator=torch.Generator().manual_seed(3)).bfloat16(),
    "another": torch.randn(500, 300, generator=torch.Generator().manual_seed(4)),
}


def test_verl_finds_our_adapter_for_vllm():
    assert get_rollout_class("vllm", "async") is ContractServerAdapter


def transfer(tmp_path, spoil=lambda name, tensor: None):
    """Send WEIGHTS in buckets of 1 MB through shared memory, as on a machine without an accelerator."""
    handle, arrival, digests = f"ipc://{tmp_path}/weights.sock", Arrival(), {}

    def take(bucket, is_last):
        for name, tensor in bucket:
            spoil(name, tensor)
        arrival.take(bucket)

    receiver = BucketedWeightReceiver(handle, torch.device("cpu"), use_shm=True)
    thread = threading.Thread(target=receiver.receive_weights, args=(take,))
    thread.start()
    sender = BucketedWeightSender(handle, bucket_size_mb=1, use_shm=True)
    asyncio.run(sender.async_send_weights(_sealed(WEIGHTS.items(), digests, 7, Part.FULL)))
    thread.join()
    return arrival, digests


def test_both_sides_of_a_transfer_have_the_same_fingerprint(tmp_path):
    arrival, digests = transfer(tmp_path)
    assert arrival.digests == digests
    assert arrival.verified().checksum == fingerprint(WEIGHTS.items())
    assert arrival.verified().policy_version == 7


def test_a_bit_that_flips_on_the_way_is_found(tmp_path):
    def spoil(name, tensor):
        if name == "half":
            tensor.view(torch.int16)[5] ^= 1

    arrival, _ = transfer(tmp_path, spoil)
    with pytest.raises(ContractViolation, match="different: half"):
        arrival.verified()


def test_what_a_transfer_carries():
    assert _part(None, True) is Part.FULL
    assert _part({"r": 8}, False) is Part.BASE
    assert _part({"r": 8}, True) is Part.ADAPTER


class Server:
    """Remembers the version label that it was given."""

    def __init__(self):
        self.label = None
        self.set_global_steps = SimpleNamespace(remote=self._set)

    async def _set(self, version):
        self.label = version


@pytest.fixture
def sender(tmp_path):
    made = object.__new__(ContractServerAdapter)
    made._run, made._registry, made._lock = tmp_path, Registry(tmp_path), lock_of("sha256:b", {"train": [scaffold()]})
    made._base_checksum, made._publication, made.server_handle = None, None, Server()
    return made


def finish(sender, version, part, checksum, ranks=(0,), config=None):
    if sender._publication is None:
        sender._publication = sender._registry.build(version, 0, num_ranks=1)
    for rank in ranks:
        sender._registry.acknowledge(version, 0, part, rank, checksum, 4, None)
    asyncio.run(sender._finish(sender._publication, part, checksum, version, config))


def test_the_label_moves_only_after_every_rank_acknowledged(sender):
    with pytest.raises(ContractViolation, match=r"silent ranks \[0\]"):
        finish(sender, 3, Part.FULL, "sha256:w", ranks=())
    assert sender.server_handle.label is None
    assert sender._registry.serving(1e12) == []
    finish(sender, 3, Part.FULL, "sha256:w")
    assert sender.server_handle.label == 3
    (served,) = sender._registry.serving(1e12)
    manifest = read_manifest(sender._run / "manifests" / f"{served.manifest_hash.removeprefix('sha256:')}.json")
    assert (manifest.policy_version, manifest.weight_checksum, manifest.adapter_revision) == (3, "sha256:w", None)
    assert manifest.without_weights() == scaffold()


def test_base_and_adapter_are_published_as_one_version(sender):
    config = {"r": 8, "lora_alpha": 16, "target_modules": {"q_proj"}}
    finish(sender, 0, Part.BASE, "sha256:base", config=config)
    assert sender.server_handle.label is None
    finish(sender, 0, Part.ADAPTER, "sha256:a0", config=config)
    finish(sender, 1, Part.ADAPTER, "sha256:a1", config=config)
    served = sender._registry.publications()
    assert [record.state for record in served] == [State.RETIRED, State.ACTIVE]
    assert {record.base_checksum for record in served} == {"sha256:base"}
    for record, tensors in zip(served, ("sha256:a0", "sha256:a1"), strict=True):
        assert record.adapter_checksum == _adapter_revision(tensors, config)
        assert record.weight_checksum == lora_checksum("sha256:base", record.adapter_checksum)


def test_the_same_adapter_with_another_scaling_is_another_policy():
    config = {"r": 8, "lora_alpha": 16}
    assert _adapter_revision("sha256:a", config) != _adapter_revision("sha256:a", {**config, "lora_alpha": 32})
