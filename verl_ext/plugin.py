"""verl plugin: importing this module registers what verl must know before any of its components start.

verl 0.9.1 imports it in every process through the `verl.plugins` entry point (and does not call it), so it stays
light: no trainer, vllm or ray at module level. verl hides an error here at DEBUG level; the launcher therefore also
names this module in VERL_USE_EXTERNAL_MODULES, which raises, and calls `assert_registered`.
"""

from __future__ import annotations

from recipe.agent_contracts.errors import ContractViolation
from verl_ext import platform_cpu

if platform_cpu.is_cpu_stack():
    platform_cpu.register()


def missing_registrations() -> list[str]:
    """Names of registrations this process should have and does not (empty on a GPU stack)."""
    return platform_cpu.missing_registrations() if platform_cpu.is_cpu_stack() else []


def assert_registered() -> None:
    """Raise unless every registration this machine's stack needs is in place.

    Raises:
        ContractViolation: naming what is missing.
    """
    missing = missing_registrations()
    if missing:
        raise ContractViolation(
            "plugin.registration",
            expected="every registration of verl_ext.plugin",
            found=f"missing {missing}",
            evidence="verl_ext/plugin.py",
            remedy="install the project so that its verl.plugins entry point exists, or set "
            "VERL_USE_EXTERNAL_MODULES=verl_ext.plugin",
        )
