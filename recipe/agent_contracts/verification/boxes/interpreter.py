"""The interpreter as a box sees it: its real file, the standard library, the system's libraries, nothing installed.

Site-packages are left out on purpose: they hold this package, and with it the task generators and verifiers from which
hidden expectations could be derived. A worker that needs some names them (`readable`).
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

EXECUTABLE = os.path.realpath(sys.executable)
"""The interpreter itself, not the link in a virtual environment: it is bound at its own absolute path."""


def roots() -> list[Path]:
    """What every box may read: programs, libraries and the interpreter with its standard library."""
    system = [Path("/usr"), *(p for p in map(Path, ("/bin", "/lib", "/lib64")) if p.is_dir() and not p.is_symlink())]
    base = Path(os.path.realpath(sys.base_prefix))
    return system + ([] if any(base.is_relative_to(place) for place in system) else [base])


def links() -> list[tuple[str, str]]:
    """Top-level symbolic links that programs rely on, as (target, path)."""
    return [(os.readlink(path), path) for path in ("/bin", "/lib", "/lib64") if os.path.islink(path)]


def installed_packages() -> list[Path]:
    """Folders of installed packages below `roots`, which a box hides."""
    base = os.path.realpath(sys.base_prefix)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    own = sysconfig.get_paths(vars={"base": base, "platbase": base})
    places = {own["purelib"], own["platlib"], "/usr/lib/python3/dist-packages"}
    places |= {f"/usr/local/lib/{version}/{name}" for name in ("dist-packages", "site-packages")}
    return [Path(place) for place in sorted(places) if os.path.isdir(place)]


def without_packages(root: Path) -> tuple[list[Path], list[Path]]:
    """`root` for an allow-list: the largest parts that hold no installed packages, and the folders above those."""
    hidden = installed_packages()
    parts, above, pending = [], [], [root]
    for path in pending:  # grows while it is read
        if path in hidden or path.is_symlink():
            continue
        if any(place.is_relative_to(path) for place in hidden):
            above.append(path)
            pending += path.iterdir()
        else:
            parts.append(path)
    return parts, above
