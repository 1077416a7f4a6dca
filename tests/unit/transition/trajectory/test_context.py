"""Contexts as links: what is stored is what was gained, and what comes back is what was sampled from."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.agent_contracts.errors import ContractViolation, RecordCorrupt
from recipe.agent_contracts.transition.trajectory.context import context_links, contexts, prefix_hash
from tests.records import turn_record
from tests.support import case

ids = st.lists(st.integers(0, 2**32 - 1), max_size=6)


def recorded(turns):
    links = context_links(turns, "e")
    return [
        turn_record(
            turn=index,
            context_parent_hash=link.parent_hash,
            context_new_token_ids=link.new_token_ids,
            action_token_ids=action,
        )
        for index, (link, (_, action)) in enumerate(zip(links, turns, strict=True))
    ]


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=6))
def test_contexts_come_back_and_nothing_is_stored_twice(gained_and_action):
    turns, kept = [], []
    for gained, action in gained_and_action:
        turns.append((kept + gained, action))
        kept = kept + gained + action
    records = recorded(turns)
    assert contexts(records) == [context for context, _ in turns]
    assert [record.context_new_token_ids for record in records] == [gained for gained, _ in gained_and_action]
    assert records[0].context_parent_hash is None


def test_a_context_that_was_rebuilt_from_text_is_refused_with_the_first_index_that_differs():
    h01 = case("H01")
    toy, right = h01["input"], h01["check"]
    sampled = (toy["prompt_ids"], toy["sampled_ids"])
    (_, link) = context_links([sampled, (right["next_prompt_ids"], [])], "e")
    assert link.new_token_ids == toy["tool_ids"]
    index = len(toy["prompt_ids"]) + right["first_diff_index_in_response"]
    with pytest.raises(ContractViolation, match=rf"token 11 at index {index} .* found \[13\]"):
        context_links([sampled, (right["must_not_equal"], [])], "e")


def test_a_context_that_lost_its_end_is_refused():
    with pytest.raises(ContractViolation, match=r"token 2 at index 1 .* found \[\]"):
        context_links([([1], [2]), ([1], [])], "e")


@pytest.mark.parametrize(
    ("turn", "changes"),
    [
        (1, {"context_parent_hash": None}),
        (0, {"context_parent_hash": prefix_hash([])}),
        (0, {"context_new_token_ids": [9]}),
        (0, {"action_token_ids": [9]}),
    ],
)
def test_a_record_that_does_not_hang_on_the_one_before_is_corrupt(turn, changes):
    records = recorded([([1], [2]), ([1, 2, 3], [4])])
    records[turn] = msgspec.structs.replace(records[turn], **changes)
    with pytest.raises(RecordCorrupt, match=r"transition\.context"):
        contexts(records)


def test_the_hash_of_a_prefix_is_that_of_its_little_endian_words():
    assert prefix_hash([]) == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert prefix_hash([1, 256]) != prefix_hash([256, 1])
    with pytest.raises(OverflowError):
        prefix_hash([-1])
