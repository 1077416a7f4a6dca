"""G08 where the weights are a base and an adapter: the base travels once, the adapter with every version."""

from __future__ import annotations

import itertools

import pytest

from recipe.agent_contracts.evaluation.gates.base import Run, Status
from recipe.agent_contracts.evaluation.gates.policy import GeneratorChecksums
from recipe.agent_contracts.policy.registry import Part, Registry, lora_checksum

RANKS = (0, 1)


def judged(run, *, base=("sha256:base", "sha256:base"), adapter=("sha256:a", "sha256:a")):
    """Two versions on two ranks, with what the ranks acknowledged of the base and of the second adapter."""
    registry = Registry(run, clock=itertools.count().__next__)
    for version, parts in (
        (0, {Part.BASE: base, Part.ADAPTER: ("sha256:a0", "sha256:a0")}),
        (1, {Part.ADAPTER: adapter}),
    ):
        publication = registry.build(version, 0, num_ranks=len(RANKS))
        for part, received in parts.items():
            for rank, checksum in enumerate(received):
                registry.acknowledge(version, 0, part, rank, checksum, 3, None)
        revision = f"sha256:adapter {version} with its scaling"
        whole = lora_checksum("sha256:base", revision)
        registry.stage(publication, checksum=whole, manifest_hash="sha256:m", base="sha256:base", adapter=revision)
        registry.activate(publication)
    return GeneratorChecksums(Run(run)).finding()


def test_a_base_that_was_sent_once_serves_every_adapter(tmp_path):
    assert judged(tmp_path).status is Status.PASSED


@pytest.mark.parametrize(
    ("acknowledged", "version"),
    [
        ({"base": ("sha256:base", "sha256:other")}, 0),
        ({"base": ("sha256:other", "sha256:other")}, 0),
        ({"base": ("sha256:base",)}, 0),
        ({"adapter": ("sha256:a", "sha256:other")}, 1),
        ({"adapter": ("sha256:a",)}, 1),
        ({"adapter": ()}, 1),
    ],
)
def test_a_rank_that_is_silent_or_holds_something_else_is_found(tmp_path, acknowledged, version):
    found = judged(tmp_path, **acknowledged)
    assert (found.status, found.evidence) == (Status.FAILED, f"version {version} on replica 0")
