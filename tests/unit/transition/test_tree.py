"""Immutable trees: what their hash covers, and that an edit costs and touches only the directories on its path."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.agent_contracts.canonical import sha256_bytes
from recipe.agent_contracts.errors import RecordCorrupt
from recipe.agent_contracts.transition.tree import LINK_MODE, Directory, File, children_first, decode_directory
from tests.unit.transition.trees import trees

paths = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map("/".join)
EMPTY = Directory()


def test_a_worked_encoding():
    tree = Directory({"b": File(b"x", 0o600), "a\n": File(b"t", LINK_MODE, is_link=True)}, {"a": EMPTY}, 0o700)
    x, t, empty = (sha256_bytes(data)[7:] for data in (b"x", b"t", b"tree-v1 755\n"))
    expected = f"tree-v1 700\na\0d 755 {empty}\na\n\0l 777 {t}\nb\0f 600 {x}\n".encode()
    assert tree.encoded() == expected
    assert tree.blob_hash == sha256_bytes(expected)


@pytest.mark.parametrize(
    "changed",
    [
        Directory({"a": File(b"y")}),
        Directory({"b": File(b"x")}),
        Directory({"a": File(b"x", 0o755)}),
        Directory({"a": File(b"x", is_link=True)}),
        Directory({"a": File(b"x")}, {"empty": EMPTY}),
        Directory({"a": File(b"x")}, mode=0o700),
        Directory({"a": File(b"x")}, {"a": EMPTY}),
    ],
)
def test_content_name_mode_kind_and_empty_directories_count(changed):
    assert changed.blob_hash != Directory({"a": File(b"x")}).blob_hash


@given(st.lists(st.tuples(paths, st.binary(max_size=3) | st.none()), max_size=20))
def test_a_tree_follows_a_dictionary_and_forgets_the_order_of_edits(edits):
    tree, model, folders = EMPTY, {}, {""}
    for path, data in edits:
        if data is not None:
            tree, model[path] = tree.set(path, File(data)), data
            folders |= {path[:end] for end, char in enumerate(path) if char == "/"}
        elif path in model:
            tree = tree.without(path)
            del model[path]
        else:
            with pytest.raises(KeyError):
                tree.without(path)
    assert {path: file.data for path, file in tree.walk()} == model
    assert all(tree.get(path).data == data for path, data in model.items())
    built = Directory.build({path: File(data) for path, data in model.items()}, dict.fromkeys(folders, 0o755))
    assert built.blob_hash == tree.blob_hash == tree.rehashed()


def test_an_edit_shares_every_directory_off_its_path():
    before = Directory.from_files({"a/b/one": b"1", "a/c/two": b"2", "d/three": b"3"})
    after = before.set("a/b/one", File(b"new"))
    assert after.directories["d"] is before.directories["d"]
    assert after.directories["a"].directories["c"] is before.directories["a"].directories["c"]
    assert before.get("a/b/one").data == b"1"
    assert before.blob_hash == before.rehashed() != after.blob_hash


def test_nothing_of_a_tree_can_be_changed():
    given_files = {"a": File(b"x")}
    tree = Directory(given_files)
    name = tree.blob_hash
    given_files["b"] = File(b"y")
    assert tree.rehashed() == name
    with pytest.raises(TypeError):
        tree.files["b"] = File(b"y")
    with pytest.raises(AttributeError):
        tree.mode = 0o700
    with pytest.raises(AttributeError):
        tree.files["a"].data = b"z"


@pytest.mark.parametrize("path", ["", "/a", "a//b", "a/", ".", "a/../b", "a\0b"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(ValueError, match="not a path in a tree"):
        EMPTY.set(path, File(b""))
    with pytest.raises(ValueError, match="not a path in a tree"):
        Directory.from_files({path: b""})


def test_a_path_of_a_thousand_directories_is_no_deeper_than_memory():
    path = "/".join(["d"] * 1000)
    tree = EMPTY.set(path, File(b"x"))
    assert tree.blob_hash == tree.rehashed() == Directory.from_files({path: b"x"}).blob_hash
    assert [found for found, _ in tree.walk()] == [path]


@settings(max_examples=40)
@given(trees)
def test_what_is_encoded_is_decoded(tree):
    for directory in children_first(tree):
        mode, entries = decode_directory(directory.encoded())
        assert mode == directory.mode
        assert {name: entry.blob_hash for name, entry in entries if entry.is_directory} == {
            name: below.blob_hash for name, below in directory.directories.items()
        }
        assert {name: (e.blob_hash, e.mode, e.is_link) for name, e in entries if not e.is_directory} == {
            name: (file.blob_hash, file.mode, file.is_link) for name, file in directory.files.items()
        }


@pytest.mark.parametrize("encoded", [b"", b"tree-v2 755\n", b"tree-v1 755\nx", b"tree-v1 755\na\0f 644 abc\n", b"data"])
def test_what_is_no_directory_is_named(encoded):
    with pytest.raises(RecordCorrupt, match="an encoded directory"):
        decode_directory(encoded)
