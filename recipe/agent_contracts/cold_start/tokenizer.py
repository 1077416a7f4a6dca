"""The policy's tokenizer: byte-level BPE whose words are atoms, ChatML and Hermes specials, and a chat template.

The pre-tokenizer keeps a word, a two-digit number and a run of punctuation each as one token whatever stands before
it, also inside an escaped JSON string: copying a value from an observation into a tool call is then copying one
token id. Load it with `load_tokenizer`; a folder that also holds a model's config.json is refused, because there
AutoTokenizer replaces the pre-tokenizer in silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.transition.actions import InvalidReason
from recipe.agent_contracts.transition.envs.terminal.demonstrations import demonstrate
from recipe.agent_contracts.transition.envs.terminal.formats import KEYS, LEVELS, STEMS, WORDS
from recipe.agent_contracts.transition.envs.terminal.generator import make_scenario
from recipe.agent_contracts.transition.envs.terminal.task import messages
from recipe.agent_contracts.transition.envs.terminal.tools import TOOLS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

END_OF_TURN = "<|im_end|>"
PAD = "<|endoftext|>"
SPECIALS = [PAD, "<|im_start|>", END_OF_TURN, "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
MACROS = [
    '\n{"name": "list_files", "arguments": {}}\n',
    '\n{"name": "read_file", "arguments": {"path": "',
    '\n{"name": "write_file", "arguments": {"path": "',
    '", "content": "',
    '\n{"name": "replace_in_file", "arguments": {"path": "',
    '", "old": "',
    '", "new": "',
    '\n{"name": "finish", "arguments": {}}\n',
    '\n{"name": "abstain", "arguments": {}}\n',
    *(tool.name for tool in TOOLS if "_" in tool.name),
    "Fix files with tools. Budget: ",
    " steps, ",
    " tokens.",
]
"""Frequent skeletons as one token each. Not special: they are ordinary text that happens to be one id."""

_ATOMS = r'\\n|(?:\\"|[^A-Za-z0-9\\])+|[A-Za-z]+|[0-9]{1,2}|\\'
_MAX_VOCABULARY = 1024
_CORPUS_SCENARIOS = 4000

CHAT_TEMPLATE = (Path(__file__).parent / "chat_template.jinja").read_text().rstrip("\n")


def build_tokenizer(seed: int = 7) -> PreTrainedTokenizerFast:
    """Train the tokenizer on the training split. Deterministic for a seed; the vocabulary has no unused id."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_ATOMS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_MAX_VOCABULARY,
        min_frequency=3,
        special_tokens=SPECIALS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(_corpus(seed), trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=END_OF_TURN,
        pad_token=PAD,
        additional_special_tokens=SPECIALS[1:],
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in MACROS])
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Load a saved tokenizer.

    Raises:
        ContractViolation: when the folder also holds a config.json.
    """
    from transformers import PreTrainedTokenizerFast

    if (folder / "config.json").exists():
        raise ContractViolation(
            "policy.tokenizer",
            "a tokenizer folder without config.json",
            "config.json",
            evidence=str(folder),
            remedy="AutoTokenizer would replace the pre-tokenizer there: keep model and tokenizer in two folders",
        )
    tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(str(folder))
    return tokenizer


def _corpus(seed: int) -> Iterator[str]:
    """Text of training tasks and demonstrations, without the special tokens, and each word of the vocabulary."""
    rng = Random(seed)
    for index in range(_CORPUS_SCENARIOS):
        scenario = make_scenario("train", seed * 1_000_003 + index)
        yield from (message["content"] for message in messages(scenario.task))
        yield from scenario.task.files.values()
        for turn in demonstrate(scenario, rng).turns:
            yield turn.removeprefix("<tool_call>").removesuffix("</tool_call>")
    words = [*KEYS, *WORDS, *STEMS, *LEVELS, "ok", "user", "system", "assistant", "open", "args", "error: "]
    tools = "\n".join(f"{tool.name}({', '.join(tool.parameters['properties'])})" for tool in TOOLS)
    reasons = [*InvalidReason, "no_file", "no_match", "several_matches"]
    for _ in range(40):
        yield " ".join(words) + tools + "\n".join(reasons)
