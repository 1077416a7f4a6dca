"""The labelled states of the terminal domain: enough of each kind, agreed upon, the same every time."""

import os
import subprocess
import sys
from collections import Counter, defaultdict

import pytest

from recipe.agent_contracts.domains import DOMAINS, load
from recipe.agent_contracts.transition.envs.terminal.families import FAMILIES
from recipe.agent_contracts.verification.labels import LabelSource, hash_of, require_agreement
from recipe.agent_contracts.verification.terminal_corruptions import CORRUPTIONS, right_outcome
from recipe.agent_contracts.verification.terminal_labelled import labelled_states, tasks_by_family


@pytest.fixture(scope="module")
def states():
    return labelled_states()


def test_every_shipped_domain_has_labelled_states():
    assert all(domain.labelled and callable(load(domain.labelled)) for domain in DOMAINS.values())


def test_the_sources_of_labels_agree_about_every_state(states):
    require_agreement(states)


def test_every_family_has_at_least_300_wrong_and_100_right_states(states):
    counted = Counter((state.family, state.is_right) for state in states)
    for family in FAMILIES:
        assert counted[str(family), False] >= 300, family
        assert counted[str(family), True] >= 100, family
    assert {state.family for state in states} == {str(family) for family in FAMILIES}


def test_no_state_of_a_task_is_there_twice(states):
    assert len({(state.task_id, state.final_state) for state in states}) == len(states)


def test_no_label_is_a_persons_and_the_second_program_labels_everything(states):
    sources = Counter(label.source for state in states for label in state.labels)
    assert sources[LabelSource.HUMAN] == 0
    assert sources[LabelSource.SECOND_PROGRAM] == len(states)
    assert 0 < sources[LabelSource.CONSTRUCTED] < len(states)


def test_every_corruption_occurs_and_each_in_most_families(states):
    families = defaultdict(set)
    for state in states:
        families[state.name].add(state.family)
    everywhere = {corruption.name for corruption in CORRUPTIONS} - {
        "json without spaces",
        "newline missing",
        "newlines of another system",
        "last lines in another order",
        "source file changed",
        "case changed",
    }
    assert {corruption.name for corruption in CORRUPTIONS} <= families.keys()
    assert all(len(families[name]) == len(FAMILIES) for name in everywhere), {n: len(families[n]) for n in everywhere}


def test_what_is_played_ends_right_and_wrong_in_every_family(states):
    played = {(state.family, state.is_right) for state in states if state.name.startswith("played")}
    assert len(played) == 2 * len(FAMILIES)


def test_a_corrupted_state_differs_from_the_right_one():
    scenarios = [task for tasks in tasks_by_family().values() for task in tasks[:10]]
    for scenario in scenarios:
        for corruption in CORRUPTIONS:
            outcome = corruption.apply(scenario)
            assert outcome != right_outcome(scenario), corruption.name


def test_the_set_is_the_same_in_every_process(states):
    program = (
        "from recipe.agent_contracts.verification.labels import hash_of\n"
        "from recipe.agent_contracts.verification.terminal_labelled import labelled_states\n"
        "print(hash_of(labelled_states()))"
    )
    other = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == hash_of(states)
