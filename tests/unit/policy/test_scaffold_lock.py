"""The lock: who may sample, and what a drift says."""

import pytest

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.policy.manifest import Sampler
from recipe.agent_contracts.policy.scaffold_lock import attest, lock_of, read_attestations, read_lock, write_lock
from tests.policies import scaffold

GREEDY = scaffold(sampler=Sampler(0.0, 1.0, None))
DECODINGS = {"train": [scaffold()], "heldout/temperature_1": [scaffold()], "heldout/greedy": [GREEDY]}


@pytest.fixture
def run(tmp_path):
    write_lock(tmp_path, lock_of("sha256:b", DECODINGS))
    return tmp_path


def test_every_role_that_finds_the_same_is_written_down(run):
    for role in ("launcher", "trainer", "rollout", "evaluator", "reward"):
        attest(run, role, DECODINGS)
    found = read_attestations(run)
    assert [line.role for line in found] == ["launcher", "trainer", "rollout", "evaluator", "reward"]
    assert all(line.scaffolds == found[0].scaffolds for line in found)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"system_prompt_hash": "sha256:x"}, "system prompt hash was sha256:s, is sha256:x"),
        ({"tool_schema_hash": "sha256:x"}, "tool schema hash was sha256:o, is sha256:x"),
        ({"chat_template_hash": "sha256:x"}, "chat template hash was sha256:c, is sha256:x"),
        ({"sampler": Sampler(0.9, 1.0, None)}, "sampler.temperature was 1.0, is 0.9"),
    ],
)
def test_a_drift_stops_the_process_and_a_resume_and_names_the_field(run, changes, words):
    drifted = scaffold(**changes)
    with pytest.raises(ContractViolation, match=words):
        attest(run, "reward", {"train": [drifted]})
    with pytest.raises(ContractViolation, match=words):
        write_lock(run, lock_of("sha256:b", {**DECODINGS, "train": [drifted]}))
    assert not (run / "scaffold_attested.jsonl").exists()


def test_the_greedy_sampler_may_evaluate_and_never_train(run):
    lock = read_lock(run)
    lock.require("heldout/greedy", GREEDY, "evaluator")
    with pytest.raises(ContractViolation, match=r"sampler\.temperature was 1\.0, is 0\.0"):
        lock.require("train", GREEDY, "rollout")


def test_an_undeclared_decoding_is_refused(run):
    with pytest.raises(ContractViolation, match="heldout/beam"):
        read_lock(run).require("heldout/beam", scaffold(), "evaluator")


def test_tasks_with_different_tools_are_all_locked(tmp_path):
    other = scaffold(tool_schema_hash="sha256:x")
    write_lock(tmp_path, lock_of("sha256:b", {"train": [scaffold(), other, scaffold()]}))
    lock = read_lock(tmp_path)
    assert len(lock.decodings["train"]) == 2
    lock.require("train", other, "rollout")


def test_the_order_of_rows_is_not_part_of_the_lock():
    other = scaffold(tool_schema_hash="sha256:x")
    first = lock_of("sha256:b", {"train": [scaffold(), other], "heldout/greedy": [GREEDY]})
    assert first.lock_hash == lock_of("sha256:b", {"heldout/greedy": [GREEDY], "train": [other, scaffold()]}).lock_hash


def test_a_resume_in_a_renamed_folder_goes_on(run):
    renamed = run.rename(run.with_name("renamed"))
    write_lock(renamed, lock_of("sha256:b", DECODINGS))


def test_a_resume_that_starts_from_other_files_is_refused(run):
    with pytest.raises(ContractViolation, match=r"policy\.base"):
        write_lock(run, lock_of("sha256:other", DECODINGS))
