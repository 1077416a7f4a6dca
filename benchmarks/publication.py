"""What fingerprints cost: their speed beside the machine's copy bandwidth, and a publication beside verl's stock one.

    python benchmarks/publication.py [--megabytes 256] [--rounds 7]

Both sides of each comparison run in one process, interleaved, and the ratio of each round is what is reported: a noisy
machine slows both. `sync` moves the weights of a model through verl's own bucketed transfer in shared memory, with and
without digests and envelope, and loads nothing: it is the share that fingerprints can add to.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import threading
import time
from collections.abc import Callable

import torch
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver, BucketedWeightSender

from recipe.agent_contracts.policy.fingerprint import tensor_digest
from recipe.agent_contracts.policy.publication import Arrival
from recipe.agent_contracts.policy.registry import Part
from verl_ext.weight_sender import _sealed

BUCKET_MEGABYTES = 64
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "tiny policy (0.6M)": {
        "embed_tokens": (803, 128),
        **{f"layers.{i}.qkvo": (512, 128) for i in range(3)},
        **{f"layers.{i}.mlp": (768, 128) for i in range(3)},
    },
    "SmolLM2-135M sizes": {
        "embed_tokens": (24576, 576),
        "embed_tokens.rest": (24576, 576),
        **{f"layers.{i}.attention": (1536, 576) for i in range(30)},
        **{f"layers.{i}.mlp": (4608, 576) for i in range(30)},
    },
}
"""Shapes that add up to each model's weights, in fp32; no tensor exceeds the bucket."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=256, help="size of the tensor that is digested and copied")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    _fingerprint_speed(arguments.megabytes, arguments.rounds)
    for name, shapes in SHAPES.items():
        _sync(name, {key: torch.randn(shape) for key, shape in shapes.items()}, arguments.rounds)


def _fingerprint_speed(megabytes: int, rounds: int) -> None:
    tensor = torch.randn(megabytes * (1 << 20) // 4)
    target = torch.zeros_like(tensor)  # touched: a first copy would measure page faults
    pairs = [
        (_seconds(lambda: tensor_digest("w", tensor)), _seconds(lambda: target.copy_(tensor))) for _ in range(rounds)
    ]
    speed, copy = (statistics.median(tensor.nbytes / pair[side] / 1e9 for pair in pairs) for side in (0, 1))
    ratio = statistics.median(copied / digested for digested, copied in pairs)
    print(f"fingerprint {speed:.1f} GB/s, copy {copy:.1f} GB/s, fingerprint/copy {ratio:.2f} (target: at least 0.5)")


def _sync(name: str, weights: dict[str, torch.Tensor], rounds: int) -> None:
    _transfer(weights, fingerprinted=True)
    pairs = [
        (
            _seconds(lambda: _transfer(weights, fingerprinted=True)),
            _seconds(lambda: _transfer(weights, fingerprinted=False)),
        )
        for _ in range(rounds)
    ]
    ours, stock = (statistics.median(pair[side] for pair in pairs) for side in (0, 1))
    ratio = statistics.median(with_digests / without for with_digests, without in pairs)
    print(f"transfer of {name}: {ours * 1e3:.1f} ms with fingerprints, {stock * 1e3:.1f} ms stock, ratio {ratio:.2f}")


def _transfer(weights: dict[str, torch.Tensor], fingerprinted: bool) -> None:
    """One transfer between two threads, staged as the CPU worker stages it."""
    arrival, staged = Arrival(), {}

    def take(bucket: list[tuple[str, torch.Tensor]], is_last: bool) -> None:
        received = arrival.take(bucket) if fingerprinted else bucket
        staged.update((name, tensor.clone()) for name, tensor in received)

    with tempfile.TemporaryDirectory() as folder:
        handle = f"ipc://{folder}/weights.sock"
        receiver = BucketedWeightReceiver(handle, torch.device("cpu"), use_shm=True)
        thread = threading.Thread(target=receiver.receive_weights, args=(take,))
        thread.start()
        sender = BucketedWeightSender(handle, BUCKET_MEGABYTES, use_shm=True)
        sent = _sealed(weights.items(), {}, 1, Part.FULL) if fingerprinted else iter(weights.items())
        asyncio.run(sender.async_send_weights(sent))
        thread.join()
    if fingerprinted:
        arrival.verified()


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
