"""One tokenizer for all tests of the cold start: training it takes seconds."""

from __future__ import annotations

import pytest
from transformers import PreTrainedTokenizerFast

from recipe.agent_contracts.cold_start.tokenizer import build_tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer()
