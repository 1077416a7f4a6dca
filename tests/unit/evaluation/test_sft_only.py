"""The SFT-only control: as many action tokens as the run trained, from the policy that the run started from."""

import itertools
from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM

from recipe.agent_contracts.cold_start.config import ColdStartConfig
from recipe.agent_contracts.cold_start.episodes import TokenSequence
from recipe.agent_contracts.cold_start.model import build_model
from recipe.agent_contracts.cold_start.tokenizer import build_tokenizer
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.evaluation.sft_only import imitate_tokens, make_sft_only
from recipe.agent_contracts.policy.scaffold_lock import ScaffoldLock, write_lock
from recipe.agent_contracts.update.record import UpdateRow
from tests.unit.update.test_record import record, row


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cold")
    tokenizer = build_tokenizer()
    model = build_model(ColdStartConfig(num_layers=1), tokenizer)
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "tokenizer")
    return folder


def make_run(run: Path, cold: Path, rows: list[UpdateRow]) -> Path:
    run.mkdir()
    files = {"path": str(cold / "model"), "tokenizer_path": str(cold / "tokenizer")}
    optim = {"lr": 3e-4, "lr_warmup_steps": 5}
    experiment = {"actor_rollout_ref": {"model": files, "actor": {"optim": optim}}}
    (run / "experiment.yaml").write_text(yaml.safe_dump(experiment))
    write_lock(run, ScaffoldLock("sha256:cold", {}))
    if rows:
        record(1, rows).write(run)
        record(2, rows).write(run)
    return run


def test_it_trains_the_runs_own_initial_policy_on_the_tokens_of_its_updates(tmp_path, cold):
    run = make_run(tmp_path / "run", cold, [row(num_action_tokens=300), row(num_action_tokens=400)])
    progress = []
    made = make_sft_only(run, tmp_path / "sft", seed=1, report=lambda *step: progress.append(step))
    assert made.matched_tokens == 1400
    # One batch of 24 demonstrations is less than 1400 tokens, so the overshoot is less than a batch.
    assert 1400 <= made.trained_tokens < 1400 + progress[0][0]
    assert made.sequence_tokens > made.trained_tokens
    assert (made.num_steps, made.base_revision, made.learning_rate) == (len(progress), "sha256:cold", 3e-4)
    before, after = (AutoModelForCausalLM.from_pretrained(at / "model") for at in (cold, tmp_path / "sft"))
    moved = [not torch.equal(*pair) for pair in zip(before.parameters(), after.parameters(), strict=True)]
    assert all(moved)


def test_a_run_without_updates_and_a_folder_that_exists_are_refused(tmp_path, cold):
    with pytest.raises(ContractViolation, match="a run that made updates"):
        make_sft_only(make_run(tmp_path / "frozen", cold, []), tmp_path / "sft", 1, print)
    with pytest.raises(ContractViolation, match="a new folder"):
        make_sft_only(make_run(tmp_path / "run", cold, [row()]), cold, 1, print)
    assert not (tmp_path / "sft").exists()


def test_only_action_tokens_count_and_the_batch_that_reaches_the_number_is_the_last(cold):
    model = AutoModelForCausalLM.from_pretrained(cold / "model")
    sequence = TokenSequence([5, 6, 7, 8], [False, False, True, True])
    # 24 sequences of 2 action tokens a step: 48, 96, 144.
    counts = imitate_tokens(model, itertools.repeat(sequence), 100, lambda step: 1e-3, lambda *_: None)
    assert counts == (144, 288, 3)
