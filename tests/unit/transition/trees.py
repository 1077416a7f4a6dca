"""Hypothesis strategies for trees with the names, modes, links and empty directories that a disk can hold."""

from __future__ import annotations

from hypothesis import strategies as st

from recipe.agent_contracts.transition.tree import LINK_MODE, Directory, File, name_text

names = (
    st.binary(min_size=1, max_size=12)
    .map(lambda raw: raw.replace(b"/", b"_").replace(b"\0", b"_"))
    .filter(lambda raw: raw not in (b".", b".."))
    | st.sampled_from([b"\n", b" ", b"-rf", b"\xff\xfe", "é\u202e".encode(), b"a" * 255, b"f 644", b".hidden", b"\\0"])
).map(name_text)
modes = st.sampled_from([0o644, 0o600, 0o755, 0o444, 0o4755, 0o2711, 0o400])
links = st.sampled_from([b"/etc/passwd", b"..", b"gone\n", b"\xff"]).map(
    lambda target: File(target, LINK_MODE, is_link=True)
)
files = st.builds(File, st.binary(max_size=40), modes) | links


def directories(inner: st.SearchStrategy[Directory]) -> st.SearchStrategy[Directory]:
    # On a disk a name is either a file or a directory.
    entries = st.dictionaries(names, files | inner, max_size=5)
    return st.builds(split, entries, st.sampled_from([0o755, 0o700, 0o1777]))


def split(entries: dict[str, File | Directory], mode: int) -> Directory:
    return Directory(
        {name: entry for name, entry in entries.items() if isinstance(entry, File)},
        {name: entry for name, entry in entries.items() if isinstance(entry, Directory)},
        mode,
    )


trees = st.recursive(st.builds(Directory), directories, max_leaves=8)
