"""Tokens without a model: one for each UTF-8 byte, and one for each ChatML marker.

It stands where a Hugging Face tokenizer does, so the episodes of the experiment are counted by the same `Episode` and
`ChatTemplateRenderer` as a rollout's. Bytes add up exactly, which lets padding meet a budget to the token.
"""

from __future__ import annotations

import json
import re
from typing import Any

START, END = "<|im_start|>", "<|im_end|>"
_MARKERS = {START: 256, END: 257}
_SPLIT = re.compile("(" + "|".join(map(re.escape, _MARKERS)) + ")")


class ByteTokenizer:
    """What `ChatTemplateRenderer` asks of a tokenizer."""

    eos_token = END
    eos_token_id = _MARKERS[END]

    def apply_chat_template(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        add_generation_prompt: bool,
        tokenize: bool,
    ) -> str:
        """ChatML; the tools are one line of JSON each, at the top."""
        head = "".join(f"{json.dumps(tool)}\n" for tool in tools or [])
        body = "".join(f"{START}{message['role']}\n{message['content']}{END}\n" for message in messages)
        return head + body + (f"{START}assistant\n" if add_generation_prompt else "")

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        """Token ids of a text; the markers are one token each."""
        ids: list[int] = []
        for part in _SPLIT.split(text):
            ids += [_MARKERS[part]] if part in _MARKERS else part.encode()
        return {"input_ids": ids}

    def decode(self, token_ids: list[int], skip_special_tokens: bool) -> str:
        """The text of ids without markers, as an actor's turn is once its end is cut off."""
        return bytes(token_ids).decode()
