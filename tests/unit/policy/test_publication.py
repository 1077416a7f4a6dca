"""One transfer: what arrives must be what was sent, or it is refused with the tensors' names."""

import pytest
import torch

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.policy.fingerprint import digests
from recipe.agent_contracts.policy.publication import ENVELOPE_NAME, Arrival, Envelope
from recipe.agent_contracts.policy.registry import Part

WEIGHTS = {"a": torch.arange(4.0), "b": torch.ones(2, 2), "c": torch.zeros(3, dtype=torch.bfloat16)}


def envelope():
    return Envelope(7, Part.FULL, digests(WEIGHTS.items()))


def arrive(tensors, sealed=True):
    arrival = Arrival()
    for item in tensors.items():
        arrival.take([item])
    if sealed:
        assert arrival.take([(ENVELOPE_NAME, envelope().as_tensor())]) == []
    return arrival


def test_what_arrives_as_it_was_sent_is_accepted_and_its_envelope_is_not_a_weight():
    arrival = arrive(WEIGHTS)
    assert arrival.verified() == envelope()
    assert set(arrival.digests) == set(WEIGHTS)


@pytest.mark.parametrize(
    ("received", "words"),
    [
        ({**WEIGHTS, "a": torch.tensor([0.0, 1.0, 2.0, 3.0000002])}, "different: a"),
        ({"a": WEIGHTS["a"], "b": WEIGHTS["b"]}, "missing: c"),
        ({**WEIGHTS, "d": torch.ones(1)}, "unexpected: d"),
        ({**WEIGHTS, "c": WEIGHTS["c"].float()}, "different: c"),
        ({"a": WEIGHTS["b"], "b": WEIGHTS["a"], "c": WEIGHTS["c"]}, "different: a, b"),
        ({}, "missing: a, b, c"),
    ],
    ids=["one value", "dropped", "added", "cast", "swapped", "nothing"],
)
def test_what_does_not_is_refused_by_name(received, words):
    with pytest.raises(ContractViolation, match=words) as raised:
        arrive(received).verified()
    assert "version 7" in str(raised.value)


def test_weights_without_an_envelope_are_refused():
    with pytest.raises(ContractViolation, match="an envelope"):
        arrive(WEIGHTS, sealed=False).verified()
