"""verl finds an FSDP engine for device cpu, for the actor and for a critic."""

import pytest
from verl.workers.engine.base import EngineRegistry

from verl_ext import engine_cpu


@pytest.mark.parametrize("backend", ["fsdp", "fsdp2"])
@pytest.mark.parametrize(
    ("model_type", "engine"),
    [
        ("language_model", engine_cpu.CpuFSDPEngineWithLMHead),
        ("value_model", engine_cpu.CpuFSDPEngineWithValueHead),
    ],
)
def test_the_engine_of_a_cpu_is_ours(monkeypatch, model_type, backend, engine):
    monkeypatch.setenv("VERL_ENGINE_DEVICE", "cpu")
    monkeypatch.setenv("VERL_ENGINE_VENDOR", "cpu")
    assert EngineRegistry.get_engine_cls(model_type, backend) is engine


@pytest.mark.parametrize("model_type", ["language_model", "value_model"])
def test_the_engine_of_a_gpu_stays_verls(monkeypatch, model_type):
    monkeypatch.setenv("VERL_ENGINE_DEVICE", "cuda")
    monkeypatch.setenv("VERL_ENGINE_VENDOR", "nvidia")
    assert EngineRegistry.get_engine_cls(model_type, "fsdp2").__module__.startswith("verl.")
