"""Content-addressed blobs."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.agent_contracts.errors import RecordCorrupt
from recipe.agent_contracts.transition.snapshots import BlobStore


def test_equal_content_is_stored_once(tmp_path):
    store = BlobStore(tmp_path)
    assert store.put(b"x") == store.put(b"x")
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1


@given(data=st.binary(max_size=200))
def test_what_is_put_is_got(tmp_path_factory, data):
    store = BlobStore(tmp_path_factory.mktemp("blobs"))
    assert store.get(store.put(data)) == data


def test_a_changed_blob_is_named(tmp_path):
    store = BlobStore(tmp_path)
    name = store.put(b"right")
    Path(store.path(name)).write_bytes(b"wrong")
    with pytest.raises(RecordCorrupt, match=name):
        store.get(name)


def test_a_missing_blob_is_named(tmp_path):
    with pytest.raises(RecordCorrupt, match="no such blob"):
        BlobStore(tmp_path).get("sha256:" + "0" * 64)
