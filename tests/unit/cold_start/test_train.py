"""Cold-start training: same seed, same weights; a loss that equals the plain one; a policy that loads and rolls out."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen2ForCausalLM

from recipe.agent_contracts.cold_start.config import ColdStartConfig
from recipe.agent_contracts.cold_start.episodes import demonstration, open_scenario
from recipe.agent_contracts.cold_start.evaluate import evaluate
from recipe.agent_contracts.cold_start.fixture import SOURCES, cache_key
from recipe.agent_contracts.cold_start.model import build_model, token_losses
from recipe.agent_contracts.cold_start.train import imitate, pad
from recipe.agent_contracts.cold_start.warmup import warm_up
from recipe.agent_contracts.transition.envs.terminal.generator import Scenario, make_scenario
from recipe.agent_contracts.transition.rendering import ChatTemplateRenderer
from recipe.agent_contracts.transition.termination import Termination

ROOT = Path(__file__).parents[3]
TINY = ColdStartConfig(warmup_steps=2, warmup_batch_size=4, imitation_steps=2, imitation_batch_size=2)


def trained(tokenizer: PreTrainedTokenizerFast, report: Callable[[str, float], None]) -> Qwen2ForCausalLM:
    model = build_model(TINY, tokenizer)
    warm_up(model, TINY, report)
    imitate(model, tokenizer, TINY, report)
    return model


def scenarios(count: int) -> list[Scenario]:
    return [make_scenario("train", seed) for seed in range(count)]


def test_the_vocabulary_is_exactly_the_tokenizers(tokenizer: PreTrainedTokenizerFast) -> None:
    model = build_model(TINY, tokenizer)
    assert model.config.vocab_size == model.lm_head.weight.shape[0] == len(tokenizer)
    assert model.config.hidden_size // model.config.num_attention_heads == 32
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_a_seed_gives_identical_weights(tokenizer: PreTrainedTokenizerFast) -> None:
    stages: list[str] = []
    first = trained(tokenizer, lambda stage, loss: stages.append(stage))
    second = trained(tokenizer, lambda stage, loss: None)
    assert stages == ["warm-up"] * 2 + ["imitation"] * 2
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, second.state_dict()[name]), name


@pytest.mark.parametrize("count", [1, 5])
def test_sharing_the_prefix_changes_neither_loss_nor_gradient(tokenizer: PreTrainedTokenizerFast, count: int) -> None:
    renderer = ChatTemplateRenderer(tokenizer)
    ids, is_action = pad([demonstration(scenario, renderer, Random(0)) for scenario in scenarios(count)])
    gradients = []
    for shared in (True, False):
        model = build_model(TINY, tokenizer)
        if shared:
            losses = token_losses(model, ids, is_action)
        else:
            chosen = is_action[:, 1:]
            logits = model(input_ids=ids[:, :-1]).logits[chosen]
            losses = torch.nn.functional.cross_entropy(logits, ids[:, 1:][chosen], reduction="none")
        assert len(losses) == int(is_action.sum())
        losses.mean().backward()
        gradients.append(model.model.embed_tokens.weight.grad)
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-5, rtol=1e-4)


def test_a_saved_model_loads_without_a_changed_logit(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    model = build_model(TINY, tokenizer).eval()
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    ids = torch.tensor([open_scenario(scenarios(1)[0], ChatTemplateRenderer(tokenizer)).prompt_ids])
    with torch.no_grad():
        assert torch.equal(model(input_ids=ids).logits, loaded(input_ids=ids).logits)
    assert loaded.config.eos_token_id == loaded.generation_config.eos_token_id == tokenizer.eos_token_id


def test_rollouts_end_within_the_budgets_and_repeat_for_a_seed(tokenizer: PreTrainedTokenizerFast) -> None:
    model = build_model(TINY, tokenizer)
    short = [
        msgspec.structs.replace(scenario, task=msgspec.structs.replace(scenario.task, token_budget=20))
        for scenario in scenarios(3)
    ]
    first = evaluate(model, tokenizer, short, temperature=1.0, num_attempts=2, seed=4)
    assert first == evaluate(model, tokenizer, short, temperature=1.0, num_attempts=2, seed=4)
    assert len(first) == 6
    for outcome in first:
        # An untrained policy writes noise until the token budget is spent.
        assert outcome.termination is Termination.TASK_BUDGET_EXHAUSTED
        assert outcome.num_response_tokens == 20
        assert outcome.score.task_success == 0.0


def test_the_cache_key_follows_the_configuration() -> None:
    assert cache_key(TINY) == cache_key(dataclasses.replace(TINY))
    assert cache_key(TINY) != cache_key(dataclasses.replace(TINY, seed=2))


def test_the_cache_key_covers_every_module_that_training_imports() -> None:
    code = "import sys, recipe.agent_contracts.cold_start.fixture as f, recipe.agent_contracts.cold_start.train; "
    code += "import recipe.agent_contracts.cold_start.evaluate; "
    code += "print(*(m.__file__ for n, m in sys.modules.items() if n.startswith('recipe.agent_contracts.')))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    package = ROOT / "recipe" / "agent_contracts"
    imported = {Path(file).relative_to(package).as_posix() for file in printed.split()}
    packages_without_code = {"transition/envs/__init__.py"}
    assert "cold_start/train.py" in imported
    for file in imported - packages_without_code:
        assert file in SOURCES or str(Path(file).parent) in SOURCES, f"{file} can change the weights but not the key"
