"""The task generator: determinism, disjoint splits, honest wordings, and nothing given away to the policy."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from recipe.agent_contracts.canonical import sha256_file
from recipe.agent_contracts.transition.envs.terminal.dataset import (
    HELDOUT_CANARY,
    DatasetSize,
    heldout_rows,
    heldout_scenarios,
    train_rows,
    train_scenarios,
    write_dataset,
)
from recipe.agent_contracts.transition.envs.terminal.families import FAMILIES, HELDOUT_FAMILIES, families_of
from recipe.agent_contracts.transition.envs.terminal.generator import Scenario, make_scenario, scenarios
from recipe.agent_contracts.transition.envs.terminal.task import (
    HELDOUT_SPLITS,
    SPLITS,
    Grader,
    Split,
    messages,
    task_from_json,
    task_hash,
    to_json,
)
from recipe.agent_contracts.transition.envs.terminal.wordings import WORDINGS

NUM_SAMPLED = 400


def sample(split: Split, count: int = NUM_SAMPLED) -> list[Scenario]:
    return list(islice(scenarios(split, seed=5), count))


def phrases(wordings: list[str], length: int) -> set[tuple[str, ...]]:
    """Every run of `length` neighbouring words, slots as words."""
    found: set[tuple[str, ...]] = set()
    for text in wordings:
        words = re.findall(r"\{\w+\}|\w+", text.lower())
        found |= {tuple(words[start : start + length]) for start in range(len(words) - length + 1)}
    return found


def wordings(split: Split) -> list[str]:
    return [text for texts in WORDINGS[split].values() for text in texts]


@pytest.mark.parametrize("split", SPLITS)
def test_a_seed_gives_identical_bytes(split: Split) -> None:
    first, second = make_scenario(split, 17), make_scenario(split, 17)
    assert to_json(first.task) == to_json(second.task)
    assert to_json(first.grader) == to_json(second.grader)
    assert task_hash(first.task) == task_hash(second.task)


def test_public_json_survives_a_round_trip() -> None:
    task = make_scenario("train", 3).task
    assert task_from_json(to_json(task)) == task


def test_train_and_heldout_share_no_family() -> None:
    train, heldout = set(families_of("train")), set(families_of("heldout_known_style"))
    assert not train & heldout
    assert train | heldout == set(FAMILIES)
    assert heldout == HELDOUT_FAMILIES == set(families_of("heldout_unseen_wording"))


def test_every_heldout_operation_and_format_is_trained() -> None:
    train = families_of("train")
    for family in HELDOUT_FAMILIES:
        assert family.operation in {other.operation for other in train}
        assert family.source in {other.source for other in train}
        assert family.target in {other.target for other in train}


def test_splits_share_no_wording() -> None:
    texts = [text for split in SPLITS for text in wordings(split)]
    assert len(texts) == len(set(texts))


def test_generated_tasks_keep_families_templates_and_ids_apart() -> None:
    tasks = {split: [scenario.task for scenario in sample(split)] for split in SPLITS}
    for heldout in HELDOUT_SPLITS:
        for field in ("family", "template"):
            trained = {getattr(task, field) for task in tasks["train"]}
            assert not trained & {getattr(task, field) for task in tasks[heldout]}
    ids = [task.task_id for split in SPLITS for task in tasks[split]]
    contents = {(task.objective, tuple(task.files.items())) for split in SPLITS for task in tasks[split]}
    assert len(ids) == len(set(ids)) == len(contents) == NUM_SAMPLED * len(SPLITS)


def test_known_style_recombines_phrases_of_training() -> None:
    assert not phrases(wordings("heldout_known_style"), 2) - phrases(wordings("train"), 2)


def test_unseen_wording_uses_known_words_in_new_phrases() -> None:
    unseen = wordings("heldout_unseen_wording")
    assert not phrases(unseen, 1) - phrases(wordings("train"), 1)
    assert not phrases(unseen, 3) & phrases(wordings("train"), 3)


@pytest.mark.parametrize("split", SPLITS)
def test_the_public_task_never_holds_the_expected_result(split: Split) -> None:
    for scenario in sample(split):
        public = msgspec.to_builtins(scenario.task)
        assert not public.keys() & (set(Grader.__struct_fields__) - {"task_id"})
        for expected in scenario.grader.expected.values():
            assert expected not in scenario.task.files.values()
            # What drop and extract ask for is by nature a part of a file that is there.
            if scenario.task.operation not in ("drop", "extract"):
                assert all(expected not in content for content in scenario.task.files.values())


def test_the_grader_covers_every_file() -> None:
    for scenario in sample("train", 50):
        task, grader = scenario.task, scenario.grader
        assert grader.task_id == task.task_id
        assert grader.expected.keys() | grader.untouched.keys() == task.files.keys()
        assert not grader.expected.keys() & grader.untouched.keys()


def test_the_prompt_shows_both_budgets_and_the_file_names() -> None:
    task = make_scenario("train", 1).task
    system, user = messages(task)
    assert f"{task.step_budget} steps" in system["content"]
    assert f"{task.token_budget} tokens" in system["content"]
    assert all(name in user["content"] for name in task.files)
    assert task.objective in user["content"]


def test_heldout_rows_carry_both_decodings_of_each_task() -> None:
    rows = heldout_rows(6, seed=0)
    assert [(row["extra_info"]["decoding"], row["__rollout_n__"]) for row in rows[:2]] == [
        ("temperature_1", 3),
        ("greedy", 1),
    ]
    assert len(rows) == 12
    assert [row["extra_info"]["index"] for row in rows] == list(range(12))
    by_source = [row["data_source"] for row in rows]
    assert by_source.count("terminal/heldout_known_style") == by_source.count("terminal/heldout_unseen_wording") == 6


def test_train_rows_leave_the_group_size_to_the_experiment() -> None:
    row = train_rows(1, seed=0)[0]
    assert "__rollout_n__" not in row
    assert row["data_source"] == "terminal/train"
    assert "expected" not in row["extra_info"]["task"]
    assert "expected" in row["reward_model"]["ground_truth"]


def test_any_prefix_of_a_larger_data_set_is_the_smaller_one() -> None:
    assert train_scenarios(5, seed=2) == train_scenarios(9, seed=2)[:5]
    assert heldout_scenarios(4, seed=2) == heldout_scenarios(8, seed=2)[:4]


def test_parquet_files_are_byte_identical_for_a_seed(tmp_path: Path) -> None:
    size = DatasetSize(num_train=8, num_heldout=4)
    first, second = write_dataset(tmp_path / "a", size, seed=3), write_dataset(tmp_path / "b", size, seed=3)
    assert [sha256_file(path) for path in first] == [sha256_file(path) for path in second]
    assert sha256_file(first[0]) != sha256_file(write_dataset(tmp_path / "c", size, seed=4)[0])


def test_heldout_rows_and_file_carry_the_canary_outside_the_prompt_and_training_does_not(tmp_path: Path) -> None:
    train, heldout = write_dataset(tmp_path, DatasetSize(num_train=4, num_heldout=4), seed=3)
    assert pq.read_schema(heldout).metadata == {b"agent_contracts.canary": HELDOUT_CANARY.encode()}
    assert not pq.read_schema(train).metadata
    for row in pq.read_table(heldout).to_pylist():
        assert row["extra_info"]["canary"] == HELDOUT_CANARY
        assert HELDOUT_CANARY not in str([row["prompt"], row["extra_info"]["task"], row["reward_model"]])
    assert HELDOUT_CANARY not in str(pq.read_table(train).to_pylist())


def test_an_empty_data_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        write_dataset(tmp_path, DatasetSize(num_train=0, num_heldout=4), seed=0)
