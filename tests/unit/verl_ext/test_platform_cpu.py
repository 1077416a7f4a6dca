"""The CPU platform: complete against verl's interface, and its two patches do one thing each."""

import importlib.metadata

import pytest
import torch
from verl.plugin.platform import get_platform
from verl.plugin.platform.platform_base import PlatformBase

from verl_ext import platform_cpu


def test_verl_chooses_the_cpu_platform_on_a_cpu_stack():
    assert isinstance(get_platform(), platform_cpu.PlatformCPU)


def test_every_abstract_method_of_verls_platform_is_there():
    """Fails when verl adds a method that a platform must have."""
    assert not platform_cpu.PlatformCPU.__abstractmethods__
    assert PlatformBase.__abstractmethods__


def test_the_device_module_answers_what_verl_asks_of_a_device():
    module = platform_cpu.PlatformCPU().device_module
    free, total = module.mem_get_info()
    assert 0 < free <= total
    assert module.memory_allocated() > 0
    state = module.get_rng_state()
    first = torch.rand(1)
    module.set_rng_state(state)
    assert torch.equal(torch.rand(1), first)


def test_the_process_group_patch_changes_only_the_doubled_cpu_backend():
    seen = []
    patched = platform_cpu._one_gloo_backend(lambda backend, *a, **k: seen.append(backend))
    for backend in ("cpu:gloo,cpu:gloo", "cpu:gloo,cuda:nccl", "gloo"):
        patched(backend)
    assert seen == ["gloo", "cpu:gloo,cuda:nccl", "gloo"]


def test_verl_still_asks_for_the_doubled_backend():
    """The patch can go when verl stops naming cpu twice."""
    import inspect

    from verl.utils import distributed

    assert 'f"cpu:gloo,{get_device_name()}:{get_nccl_backend()}"' in inspect.getsource(distributed)


def test_the_version_patch_answers_for_vllm_only():
    assert importlib.metadata.version("vllm").endswith("+cpu")
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("no-such-distribution")
