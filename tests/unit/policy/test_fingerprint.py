"""Weight fingerprints: the same bytes agree wherever they lie, and each kind of fault is found."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.agent_contracts.policy import fingerprint as module
from recipe.agent_contracts.policy.fingerprint import differences, digests, fingerprint, tensor_digest

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int8, torch.bool]


def weights(seed=0):
    random = torch.Generator().manual_seed(seed)
    shapes = {
        "model.embed_tokens.weight": (5, 3),
        "model.layers.0.mlp.up_proj.weight": (3, 3),
        "model.norm.weight": (3,),
    }
    return {name: torch.randn(shape, generator=random) for name, shape in shapes.items()}


def test_the_digest_of_a_known_tensor_never_changes():
    """Recorded runs name their weights by it."""
    assert tensor_digest("w", torch.arange(4, dtype=torch.float32)) == KNOWN


KNOWN = "xxh3_128:bc1c872d62547abce2ebb9939ec6a2c7"


@given(st.permutations(list(weights())))
@settings(max_examples=10)
def test_the_order_in_which_tensors_come_does_not_matter(names):
    tensors = weights()
    assert fingerprint((name, tensors[name]) for name in names) == fingerprint(tensors.items())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("chunk_bytes", [1, 7, 64, 1 << 20])
def test_a_view_has_the_digest_of_its_contiguous_copy_whatever_the_chunk(monkeypatch, dtype, chunk_bytes):
    monkeypatch.setattr(module, "CHUNK_BYTES", chunk_bytes)
    base = torch.arange(2 * 6 * 10).reshape(2, 6, 10).to(dtype)
    for view in (base.transpose(0, 2), base[:, ::2, 1:], base[0].t(), base[0, 0, 0], base[:0]):
        assert tensor_digest("w", view) == tensor_digest("w", view.clone(memory_format=torch.contiguous_format))


@given(data=st.data())
@settings(max_examples=25)
def test_any_flipped_bit_is_found(data):
    tensors = weights()
    name = data.draw(st.sampled_from(sorted(tensors)))
    before = digests(tensors.items())
    raw = tensors[name].view(torch.uint8).reshape(-1)
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert differences(before, digests(tensors.items())) == [f"different: {name}"]


def swapped(tensors):
    names = sorted(tensors)
    same = torch.ones(2)
    return {**tensors, names[0]: same * 2, names[1]: same}, {**tensors, names[0]: same, names[1]: same * 2}


def test_two_tensors_that_changed_places_are_found():
    before, after = swapped(weights())
    assert fingerprint(before.items()) != fingerprint(after.items())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda w: {name: w[name] for name in list(w)[1:]}, ["missing: model.embed_tokens.weight"]),
        (
            lambda w: {name.replace("norm", "ln"): tensor for name, tensor in w.items()},
            ["missing: model.norm.weight", "unexpected: model.ln.weight"],
        ),
        (lambda w: {**w, "model.norm.weight": w["model.norm.weight"].double()}, ["different: model.norm.weight"]),
        (lambda w: {**w, "model.norm.weight": w["model.norm.weight"][None]}, ["different: model.norm.weight"]),
    ],
    ids=["missing", "renamed", "dtype cast", "another shape"],
)
def test_a_fault_is_named(change, words):
    before = weights()
    after = change(before)
    assert differences(digests(before.items()), digests(after.items())) == words
    assert fingerprint(before.items()) != fingerprint(after.items())


def test_a_cast_to_another_type_of_equal_size_is_found_even_when_the_bytes_are_equal():
    tensor = torch.zeros(4, dtype=torch.float16)
    assert tensor_digest("w", tensor) != tensor_digest("w", tensor.bfloat16())


def test_only_the_first_names_of_many_are_listed():
    assert differences({f"w{index}": "x" for index in range(9)}, {}) == ["missing: w0, w1, w2, w3, w4 and 4 more"]


def test_a_name_that_comes_twice_is_refused():
    with pytest.raises(ValueError, match="twice"):
        digests([("w", torch.ones(1)), ("w", torch.ones(1))])


def test_no_copy_larger_than_a_chunk_is_made_of_a_strided_tensor(monkeypatch):
    monkeypatch.setattr(module, "CHUNK_BYTES", 64)
    parts = list(module._chunks(torch.zeros(50, 40).t()))
    assert max(part.nbytes for part in parts) <= 64
    assert sum(part.numel() for part in parts) == 2000
