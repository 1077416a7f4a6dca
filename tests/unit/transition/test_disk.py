"""A tree written to a disk and read back is the same tree, for any name, mode, link and empty directory."""

import os
import socket

import pytest
from hypothesis import given, settings

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.transition.disk import read_tree, write_tree
from recipe.agent_contracts.transition.snapshots import BlobStore, SnapshotStore
from recipe.agent_contracts.transition.tree import Directory, File
from tests.unit.transition.trees import trees


@settings(max_examples=40)
@given(tree=trees)
def test_disk_memory_and_file_stores_agree_on_a_tree(tmp_path_factory, tree):
    folder = tmp_path_factory.mktemp("disk")
    write_tree(tree, folder / "written")
    found = read_tree(folder / "written")
    assert found.rehashed() == tree.rehashed()
    for root in (folder / "blobs", f"memory://{folder.name}", f"file://{folder}/url"):
        store = SnapshotStore(BlobStore(root))
        assert SnapshotStore(store.blobs).load_tree(store.save_tree(found)).rehashed() == tree.rehashed()


def test_times_and_hard_links_do_not_count(tmp_path):
    write_tree(Directory.from_files({"a": b"x"}), tmp_path / "one")
    before = read_tree(tmp_path / "one").blob_hash
    os.utime(tmp_path / "one" / "a", (1, 1))
    os.link(tmp_path / "one" / "a", tmp_path / "kept")
    assert read_tree(tmp_path / "one").blob_hash == before


def test_a_link_is_kept_and_never_followed(tmp_path):
    (tmp_path / "secret").write_bytes(b"s")
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "file").symlink_to(tmp_path / "secret")
    (tmp_path / "one" / "folder").symlink_to("/")
    tree = read_tree(tmp_path / "one")
    assert {name: (file.is_link, file.data) for name, file in tree.files.items()} == {
        "file": (True, os.fsencode(tmp_path / "secret")),
        "folder": (True, b"/"),
    }
    assert not tree.directories


def test_what_is_written_shares_nothing_with_the_store(tmp_path):
    store = SnapshotStore(BlobStore(tmp_path / "blobs"))
    name = store.save_tree(Directory.from_files({"a": b"x"}))
    write_tree(store.load_tree(name), tmp_path / "one")
    (tmp_path / "one" / "a").write_bytes(b"evil")
    assert store.load_tree(name).files["a"].data == b"x"


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: socket.socket(socket.AF_UNIX).bind(str(path))])
def test_a_special_file_is_refused_and_named(tmp_path, make):
    make(tmp_path / "odd")
    with pytest.raises(ContractViolation, match=r"transition\.workspace.*odd"):
        read_tree(tmp_path)


def test_a_name_that_is_both_file_and_directory_fits_no_disk(tmp_path):
    with pytest.raises(FileExistsError):
        write_tree(Directory({"a": File(b"")}, {"a": Directory()}), tmp_path / "one")


def test_an_existing_folder_is_never_written_into(tmp_path):
    with pytest.raises(FileExistsError):
        write_tree(Directory(), tmp_path)
