"""Playing episodes with a Hugging Face model."""

import pytest
import torch

from recipe.agent_contracts.cold_start.config import ColdStartConfig
from recipe.agent_contracts.cold_start.model import build_model
from recipe.agent_contracts.cold_start.tokenizer import build_tokenizer
from recipe.agent_contracts.generation import HuggingFacePolicy, play
from recipe.agent_contracts.play import find_task, open_episode
from recipe.agent_contracts.transition.rendering import ChatTemplateRenderer


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


@pytest.fixture(scope="module")
def model(tokenizer):
    return build_model(ColdStartConfig(), tokenizer).eval()


def policy(model, tokenizer, temperature, seed=0):
    return HuggingFacePolicy(model, tokenizer.eos_token_id, tokenizer.pad_token_id, temperature, seed)


def test_the_log_probabilities_are_those_of_the_sampled_tokens_whatever_the_padding(model, tokenizer):
    """Contexts of unequal length in one batch against each alone, recomputed without a cache."""
    contexts = [[5, 6, 7, 8, 9, 10, 11], [5, 6]]
    for context, (ids, logprobs) in zip(contexts, policy(model, tokenizer, 1.0).sample(contexts, [6, 6]), strict=True):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([context + ids])).logits[0, len(context) - 1 : -1]
        expected = torch.log_softmax(logits, -1).gather(1, torch.tensor(ids)[:, None])[:, 0]
        assert torch.allclose(torch.tensor(logprobs), expected, atol=1e-4)


def test_each_context_has_its_own_limit(model, tokenizer):
    turns = policy(model, tokenizer, 1.0).sample([[5], [5]], [2, 4])
    assert len(turns[0][0]) <= 2
    assert len(turns[1][0]) <= 4


def test_a_seed_fixes_what_is_sampled(model, tokenizer):
    first, again, other = (policy(model, tokenizer, 1.0, seed).sample([[5, 6]], [8]) for seed in (1, 1, 2))
    assert first == again != other


def test_every_episode_is_played_to_an_end(model, tokenizer):
    renderer = ChatTemplateRenderer(tokenizer)
    episodes = [open_episode(find_task("terminal/train:0", 1), renderer, 1024) for _ in range(3)]
    play(episodes, policy(model, tokenizer, 1.0))
    assert all(episode.termination is not None for episode in episodes)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("terminal/train", "terminal/train:0"),
        ("terminal/train:x", "terminal/train:0"),
        ("train:0", "terminal/train:0"),
        ("terminal/nowhere:0", "heldout_known_style"),
        ("nowhere/train:0", "terminal"),
        ("", "terminal/train:0"),
    ],
)
def test_a_task_that_does_not_exist_is_refused_with_what_there_is(name, known):
    with pytest.raises(ValueError, match=known):
        find_task(name, 1)
