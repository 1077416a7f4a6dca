"""An immutable file tree, hashed as a Merkle tree: the form in which every environment's state is kept and stored.

A `Directory` is never changed: `set` and `without` give a new root that shares every directory off the path, so a
snapshot is a reference and an edit costs the directories on its path. A tree's hash covers names, contents, mode bits,
symbolic links and empty directories, and nothing else: neither times, nor owners, nor the order of edits. A name may be
a file and a directory at once here; only a disk refuses that. Nothing recurses, so depth is bounded by memory alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from recipe.agent_contracts.errors import RecordCorrupt

FILE_MODE = 0o644
DIRECTORY_MODE = 0o755
LINK_MODE = 0o777
_HEADER = b"tree-v1 "
_LINK, _FILE, _DIRECTORY = b"l", b"f", b"d"


@dataclass(frozen=True, slots=True, eq=False)
class File:
    """A file, or a symbolic link whose `data` is its target."""

    data: bytes
    mode: int = FILE_MODE
    is_link: bool = False
    _line_end: bytes | None = field(default=None, init=False, repr=False)

    @property
    def blob_hash(self) -> str:
        """`sha256:` of the content alone."""
        return f"sha256:{self.line_end()[-65:-1].decode()}"

    def line_end(self) -> bytes:
        """What follows the name in the encoding of the directory that holds this file; hashed once."""
        if self._line_end is None:
            object.__setattr__(self, "_line_end", self.rehashed_line_end())
        assert self._line_end is not None
        return self._line_end

    def rehashed_line_end(self) -> bytes:
        """The same from every byte again."""
        return _line_end(_LINK if self.is_link else _FILE, self.mode, _sha256(self.data))


@dataclass(frozen=True, slots=True, eq=False)
class Directory:
    """A directory; `files` and `directories` are read-only copies of what is given."""

    files: Mapping[str, File] = field(default_factory=dict)
    directories: Mapping[str, Directory] = field(default_factory=dict)
    mode: int = DIRECTORY_MODE
    _hash: str | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", MappingProxyType(dict(self.files)))
        object.__setattr__(self, "directories", MappingProxyType(dict(self.directories)))

    @classmethod
    def from_files(cls, files: Mapping[str, bytes]) -> Directory:
        """A tree of plain files by path.

        Raises:
            ValueError: when a path has an empty part, `.`, `..` or a NUL.
        """
        return cls.build({_checked(path): File(data) for path, data in files.items()})

    @classmethod
    def build(cls, files: Mapping[str, File], modes: Mapping[str, int] = MappingProxyType({})) -> Directory:
        """A tree by path. `modes` names directories, the root as `""`; those it names exist even when empty."""
        folders: dict[str, tuple[dict[str, File], dict[str, Directory]]] = {"": ({}, {})}
        for folder in (*modes, *(path.rpartition("/")[0] for path in files)):
            while folder not in folders:
                folders[folder] = ({}, {})
                folder = folder.rpartition("/")[0]
        for path, file in files.items():
            parent, _, name = path.rpartition("/")
            folders[parent][0][name] = file
        for path in sorted(folders, key=len, reverse=True)[:-1]:  # a directory's path is longer than its parent's
            parent, _, name = path.rpartition("/")
            folders[parent][1][name] = cls(*folders[path], modes.get(path, DIRECTORY_MODE))
        return cls(*folders[""], modes.get("", DIRECTORY_MODE))

    @property
    def blob_hash(self) -> str:
        """`sha256:` of the directory's encoding, computed once for each directory that is new."""
        if self._hash is None:
            for directory in children_first(self, only_unhashed=True):
                object.__setattr__(directory, "_hash", _sha256(directory.encoded()))
        assert self._hash is not None
        return self._hash

    def encoded(self) -> bytes:
        r"""Canonical bytes: `tree-v1 <mode>\n`, then `<name>\0<kind> <mode> <sha256>\n` for each entry, sorted.

        Names are UTF-8, in which surrogate escapes keep the bytes that are not.
        """
        lines = [name_bytes(name) + (file._line_end or file.line_end()) for name, file in self.files.items()]
        lines += [name_bytes(name) + below._end(below.blob_hash) for name, below in self.directories.items()]
        return self._joined(lines)

    def get(self, path: str) -> File | None:
        """The file at a path."""
        *parents, name = path.split("/")
        directory = self
        for parent in parents:
            if parent not in directory.directories:
                return None
            directory = directory.directories[parent]
        return directory.files.get(name)

    def set(self, path: str, file: File) -> Directory:
        """This tree with `file` at `path`; missing directories are made.

        Raises:
            ValueError: when the path has an empty part, `.`, `..` or a NUL.
        """
        *parents, name = _checked(path).split("/")
        chain = self._chain(parents)
        last = chain[-1]
        return _rebuilt(chain, parents, Directory({**last.files, name: file}, last.directories, last.mode))

    def without(self, path: str) -> Directory:
        """This tree without the file at `path`; its directory stays, even when empty.

        Raises:
            KeyError: when there is no such file.
        """
        if self.get(path) is None:
            raise KeyError(path)
        *parents, name = path.split("/")
        chain = self._chain(parents)
        last = chain[-1]
        files = {other: file for other, file in last.files.items() if other != name}
        return _rebuilt(chain, parents, Directory(files, last.directories, last.mode))

    def walk(self) -> Iterator[tuple[str, File]]:
        """Every file with its path, in no particular order."""
        pending = [("", self)]
        while pending:
            prefix, directory = pending.pop()
            for name, file in directory.files.items():
                yield prefix + name, file
            pending += [(f"{prefix}{name}/", below) for name, below in directory.directories.items()]

    def rehashed(self) -> str:
        """The hash from every byte again, trusting no hash that was kept: what sealing and audits compare."""
        hashes: dict[int, str] = {}
        for directory in children_first(self):
            lines = [name_bytes(name) + file.rehashed_line_end() for name, file in directory.files.items()]
            lines += [name_bytes(n) + below._end(hashes[id(below)]) for n, below in directory.directories.items()]
            hashes[id(directory)] = _sha256(directory._joined(lines))
        return hashes[id(self)]

    def _end(self, blob_hash: str) -> bytes:
        return _line_end(_DIRECTORY, self.mode, blob_hash)

    def _joined(self, lines: list[bytes]) -> bytes:
        # A NUL ends each name, so lines sort as their names do.
        return b"".join([b"%s%o\n" % (_HEADER, self.mode), *sorted(lines)])

    def _chain(self, parents: list[str]) -> list[Directory]:
        """This directory and those below it along `parents`, empty ones where there are none yet."""
        chain = [self]
        for parent in parents:
            chain.append(chain[-1].directories.get(parent, _EMPTY))
        return chain


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of an encoded directory."""

    kind: bytes
    mode: int
    blob_hash: str

    @property
    def is_directory(self) -> bool:
        return self.kind == _DIRECTORY

    @property
    def is_link(self) -> bool:
        return self.kind == _LINK


_EMPTY = Directory()
_HEAD = re.compile(_HEADER + rb"([0-7]+)\n")
# Names may hold anything but NUL and slash, newlines too.
_LINE = re.compile(rb"([^\0/]+)\0([fld]) ([0-7]+) ([0-9a-f]{64})\n")


def children_first(root: Directory, only_unhashed: bool = False) -> list[Directory]:
    """`root` and every directory below it (or only those without a hash), each after all that are below it."""
    order = [root]
    for directory in order:  # grows while it is read
        order += [below for below in directory.directories.values() if not only_unhashed or below._hash is None]
    return order[::-1]


def decode_directory(encoded: bytes) -> tuple[int, list[tuple[str, Entry]]]:
    """Read `Directory.encoded` back: the mode, and the entries in their order.

    Raises:
        RecordCorrupt: when the bytes are not the encoding of a directory.
    """
    head = _HEAD.match(encoded)
    entries, end = [], head.end() if head else 0
    for line in _LINE.finditer(encoded, end):
        if line.start() != end:
            break
        name, kind, mode, digest = line.groups()
        entries.append((name_text(name), Entry(kind, int(mode, 8), f"sha256:{digest.decode()}")))
        end = line.end()
    if head is None or end != len(encoded):
        raise RecordCorrupt("transition.tree", "an encoded directory", f"{encoded[end : end + 40]!r} at byte {end}")
    return int(head.group(1), 8), entries


def name_bytes(name: str) -> bytes:
    """A name as the disk has it."""
    return name.encode("utf-8", "surrogateescape")


def name_text(name: bytes) -> str:
    """A name as a tree has it."""
    return name.decode("utf-8", "surrogateescape")


def _line_end(kind: bytes, mode: int, blob_hash: str) -> bytes:
    return b"\0%s %o %s\n" % (kind, mode, blob_hash[7:].encode())


def _rebuilt(chain: list[Directory], parents: list[str], last: Directory) -> Directory:
    for above, name in zip(reversed(chain[:-1]), reversed(parents), strict=True):
        last = Directory(above.files, {**above.directories, name: last}, above.mode)
    return last


def _checked(path: str) -> str:
    if "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(f"{path!r} is not a path in a tree: empty parts, '.', '..' and NUL are not names")
    return path


def _sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()
