"""The files of a box on the host: a private folder, written by the trusted side and removed when the box has ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from recipe.agent_contracts.transition.disk import write_tree
from recipe.agent_contracts.transition.tree import Directory


@dataclass(frozen=True)
class Folder:
    """A folder that holds exactly the given files."""

    parent: Path
    path: Path

    @classmethod
    def holding(cls, files: Mapping[str, bytes], owner: int | None = None) -> Folder:
        """Write files into a new folder.

        Args:
            files: Content by relative path.
            owner: Whom they belong to, where that is not the caller.

        Raises:
            ValueError: when a path is absolute, or has an empty part, `.`, `..` or a NUL.
        """
        tree = Directory.from_files(files)
        parent = Path(tempfile.mkdtemp(prefix="box-"))
        parent.chmod(0o711)  # another user passes through to the files and lists nothing
        folder = cls(parent, parent / "files")
        try:
            write_tree(tree, folder.path)
            if owner is not None:
                for place, _, names in os.walk(folder.path):
                    for path in (place, *(os.path.join(place, name) for name in names)):
                        os.chown(path, owner, owner, follow_symlinks=False)
        except BaseException:
            folder.remove()
            raise
        return folder

    def remove(self) -> None:
        """Remove the folder and what a box left in it, which may be deep, or closed to its owner."""
        with contextlib.suppress(RecursionError):
            shutil.rmtree(self.parent, ignore_errors=True)
        if self.parent.exists():
            for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
                subprocess.run([*command, "--", self.parent], env={"PATH": "/usr/bin:/bin"}, check=True)
