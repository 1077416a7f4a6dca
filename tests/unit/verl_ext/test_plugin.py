"""Registration: found by a bare process that only imports verl, and absent where torch has an accelerator."""

import subprocess
import sys

import pytest
import torch

from recipe.agent_contracts.errors import ContractViolation
from verl_ext import platform_cpu, plugin


def run_python(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout.strip()


@pytest.mark.timeout(180)
def test_a_bare_ray_actor_that_imports_verl_finds_every_registration():
    """The entry point alone must do it: the actor names neither the plugin nor an environment variable."""
    code = """
import os
os.environ.pop("VERL_USE_EXTERNAL_MODULES", None)
import ray
ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)

@ray.remote
def look():
    import verl, sys
    loaded = "verl_ext.plugin" in sys.modules
    from verl_ext import plugin
    return loaded, plugin.missing_registrations()

print(ray.get(look.remote()))
ray.shutdown()
"""
    assert run_python(code) == "(True, [])"


def test_importing_the_plugin_is_light():
    code = """
import sys, verl
before = set(sys.modules)
import verl_ext.plugin
heavy = [m for m in ("vllm", "sglang", "mlflow", "verl.trainer.ppo.v1", "verl.experimental.agent_loop")
         if m in set(sys.modules) - before]
print(heavy)
"""
    assert run_python(code) == "[]"


def test_a_missing_registration_is_named(monkeypatch):
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda *args, **kwargs: None)
    with pytest.raises(ContractViolation, match="init_process_group"):
        plugin.assert_registered()


@pytest.mark.parametrize("accelerator", ["cuda", "hip"])
def test_the_cpu_platform_is_inert_beside_an_accelerator_build(monkeypatch, accelerator):
    monkeypatch.setattr(torch.version, accelerator, "12.8")
    assert not platform_cpu.is_cpu_stack()
    assert not platform_cpu.PlatformCPU().is_available()
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda *args, **kwargs: None)
    plugin.assert_registered()


@pytest.mark.parametrize("module", ["verl_ext.platform_cpu", "verl_ext.plugin", "verl_ext.tracing", "verl"])
def test_any_module_may_be_imported_first_with_the_plugin_named_in_the_environment(module):
    code = f"""
import os
os.environ["VERL_USE_EXTERNAL_MODULES"] = "verl_ext.plugin"
import {module}
from verl_ext import plugin
print(plugin.missing_registrations())
"""
    assert run_python(code) == "[]"
