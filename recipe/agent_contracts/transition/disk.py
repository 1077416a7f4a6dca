"""Trees on a disk: what a workspace snapshot reads and what its restore writes.

Any POSIX name, symbolic links (never followed), mode bits and empty directories come back as they were; times, owners
and hard links do not count. Content is always copied: a hard link into a store could be written through.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.transition.tree import LINK_MODE, Directory, File, name_bytes, name_text


def read_tree(folder: Path) -> Directory:
    """Read every byte below a folder; nothing may write to it meanwhile.

    Raises:
        ContractViolation: ``transition.workspace`` for a device, a socket or a pipe, which no tree can hold.
    """
    root = os.fsencode(folder)
    files: dict[str, File] = {}
    modes = {"": _mode(os.stat(root))}
    pending = [""]
    for path in pending:  # grows while it is read
        with os.scandir(_below(root, path)) as entries:
            for entry in entries:
                inner = f"{path}/{name_text(entry.name)}" if path else name_text(entry.name)
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    modes[inner] = _mode(status)
                    pending.append(inner)
                else:
                    files[inner] = _read(entry.path, status)
    return Directory.build(files, modes)


def write_tree(tree: Directory, folder: Path) -> None:
    """Write a tree into a new folder.

    Raises:
        FileExistsError: when the folder exists, or a name is both a file and a directory.
    """
    root = os.fsencode(folder)
    os.mkdir(root)
    written: list[tuple[bytes, int]] = [(root, tree.mode)]
    pending = [(root, tree)]
    for place, directory in pending:  # grows while it is read
        for name, file in directory.files.items():
            _write(place + b"/" + name_bytes(name), file)
        for name, below in directory.directories.items():
            inner = place + b"/" + name_bytes(name)
            os.mkdir(inner)
            written.append((inner, below.mode))
            pending.append((inner, below))
    # Last, and from the inside: a directory that is read-only takes no more entries.
    for place, mode in reversed(written):
        os.chmod(place, mode)


def _below(root: bytes, path: str) -> bytes:
    return root + b"/" + name_bytes(path)


def _mode(status: os.stat_result) -> int:
    return stat.S_IMODE(status.st_mode)


def _read(path: bytes, status: os.stat_result) -> File:
    if stat.S_ISLNK(status.st_mode):
        return File(os.readlink(path), LINK_MODE, is_link=True)
    if not stat.S_ISREG(status.st_mode):
        expected = "files, directories and symbolic links"
        raise ContractViolation(
            "transition.workspace", expected, f"file type {stat.filemode(status.st_mode)}", repr(path)
        )
    # Not followed, should it have become a link since it was listed.
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as stream:
        return File(stream.read(), _mode(status))


def _write(path: bytes, file: File) -> None:
    if file.is_link:
        os.symlink(file.data, path)
        return
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as stream:
        stream.write(file.data)
        os.fchmod(stream.fileno(), file.mode)
