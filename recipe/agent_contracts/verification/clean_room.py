"""The clean room: the box in which a verifier runs, what it may read there, and what that guarantees of its verdicts.

The verifier is trusted and runs nothing that the agent wrote; the box keeps everything else away from it: it inherits
no environment and no descriptor, has no network where the machine can take it away, and reads its own code alone, the
installed packages and the sealed state that it is asked about. Its answer travels on a pipe that nobody else holds.
"""

from __future__ import annotations

import importlib.util
import os
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from recipe.agent_contracts.errors import GuaranteeUnavailable, VerifierFailure
from recipe.agent_contracts.verification.boxes.base import PYTHON, Box, Limits, Running
from recipe.agent_contracts.verification.boxes.choose import open_box
from recipe.agent_contracts.verification.boxes.guarantee import Guarantee

NOT_OF_A_VERIFIER = frozenset({Guarantee.AGENT_CODE, Guarantee.TESTS_HIDDEN})
"""A verifier's box runs no agent code, and holds the hidden tests on purpose."""
_LIMITS = Limits(memory_bytes=4 << 30, processes=64, open_files=256)
_PROGRAM = (
    "import sys; sys.path[:0] = sys.argv[2].split(sys.argv[3]); "
    "from recipe.agent_contracts.verification.worker import main; main(sys.argv[1])"
)
_OURS = "recipe.agent_contracts"


@dataclass(frozen=True)
class CleanRoom:
    """Where verifiers run on this machine."""

    box: Box

    @property
    def guarantees(self) -> frozenset[Guarantee]:
        """What holds of each verdict given here."""
        return self.box.guarantees - NOT_OF_A_VERIFIER

    def start(self, verifier: str) -> Running:
        """Start the worker of a verifier, `module:Class`.

        Raises:
            VerifierFailure: when its module is not there, or the box could not be made.
        """
        imports, readable = _code_of(verifier)
        path = os.pathsep.join(imports)
        return self.box.start([*PYTHON, "-c", _PROGRAM, verifier, path, os.pathsep], limits=_LIMITS, readable=readable)


def open_room(require: frozenset[Guarantee] = frozenset()) -> CleanRoom:
    """The strongest room that this machine gives.

    Args:
        require: What the experiment relies on (`contract.verification.require_guarantees`).

    Raises:
        GuaranteeUnavailable: naming what is missing and what the probe saw; or for a guarantee that no verifier can
            have.
    """
    if require & NOT_OF_A_VERIFIER:
        expected = f"guarantees of a verifier's box: not {', '.join(sorted(NOT_OF_A_VERIFIER))}"
        raise GuaranteeUnavailable("verification.clean_room", expected, ", ".join(sorted(require)))
    return CleanRoom(open_box(require))


def _code_of(verifier: str) -> tuple[list[str], list[Path]]:
    """What the worker imports from, and what of it its box may read."""
    imports: list[str] = []
    readable: list[Path] = []
    for module in (_OURS, verifier.partition(":")[0]):
        folder, code = _place_of(module)
        imports.append(str(folder))
        readable.append(code)
    installed = {os.path.realpath(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    readable += map(Path, sorted(installed))
    imports += sorted(installed)
    kept = [path for path in dict.fromkeys(readable) if not any(other in path.parents for other in readable)]
    return list(dict.fromkeys(imports)), kept


def _place_of(module: str) -> tuple[Path, Path]:
    """The folder that a module is imported from, and the code to be read: its top package, or for a module by itself
    the folder, where the others that it imports lie."""
    package, depth = (_OURS, 2) if module.startswith(f"{_OURS}.") or module == _OURS else (module.partition(".")[0], 1)
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError) as error:
        raise VerifierFailure("verification.clean_room", "an importable verifier", str(error), module) from error
    if spec is None:
        raise VerifierFailure("verification.clean_room", "an importable verifier", f"no module {package}", module)
    if spec.submodule_search_locations:
        code = Path(os.path.realpath(next(iter(spec.submodule_search_locations))))
        return code.parents[depth - 1], code
    folder = Path(os.path.realpath(spec.origin or "")).parent
    return folder, folder
