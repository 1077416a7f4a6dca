"""Where an exported tokenizer may lie: beside the weights, or in a folder of its own.

Beside a config.json whose model type it knows, transformers 5.10 puts its own pre-tokenizer in the place of the saved
one without a word, and other token ids come out. So what was written is read back and compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from recipe.agent_contracts.errors import ContractViolation

OWN_FOLDER = "tokenizer"


def write_beside(source: str, folder: Path, contexts: Sequence[list[int]]) -> None:
    """Write the tokenizer that `source` names into `folder`, or into `folder/tokenizer` where it would change.

    Args:
        source: Folder or hub name.
        folder: Holds the model's config.json.
        contexts: Token ids of recorded contexts, whose texts are the comparison.

    Raises:
        ContractViolation: ``policy.tokenizer`` when it reads back differently in both places.
    """
    from transformers import AutoTokenizer

    original = AutoTokenizer.from_pretrained(source)
    texts = [str(original.chat_template)[:500], *(original.decode(ids) for ids in contexts)]
    expected = [original(text, add_special_tokens=False)["input_ids"] for text in texts]
    for place in (folder, folder / OWN_FOLDER):
        written = original.save_pretrained(place)
        reloaded = AutoTokenizer.from_pretrained(place)
        if [reloaded(text, add_special_tokens=False)["input_ids"] for text in texts] == expected:
            return
        for file in written:
            Path(file).unlink(missing_ok=True)
    raise ContractViolation("policy.tokenizer", f"a tokenizer that reads back as {source}", "other ids", str(folder))


def folder_of(model: Path) -> Path:
    """Where the tokenizer of a model folder lies."""
    own = model / OWN_FOLDER
    return own if own.is_dir() else model
