"""Text to token ids, only ever by appending: the sampled ids of a turn are kept, never rendered again.

Decode then encode is not the identity for BPE, so a context that is rebuilt from text trains on ids that nobody
sampled. Here the context grows by the engine's ids and by the ids of the new message alone.
"""

from __future__ import annotations

import json
from typing import Any

_MAX_CACHED = 50_000
_MARK = "the observation's text"
_BASE = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]


class ChatTemplateRenderer:
    """Renders messages with a Hugging Face tokenizer's chat template.

    Args:
        tokenizer: Any tokenizer with a chat template whose turns end with its end-of-sequence token.

    Raises:
        ValueError: when the template does not end an assistant turn with that token, so that the ids that follow a
            sampled turn could not be told.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.end_of_turn_id: int = tokenizer.eos_token_id
        self._observation_frames: dict[str, tuple[str, str]] = {}
        self._ids: dict[str, list[int]] = {}
        if tokenizer.eos_token not in self._text(_BASE, [], generation_prompt=False):
            raise ValueError(f"the chat template does not end an assistant turn with {tokenizer.eos_token!r}")

    def initial(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> list[int]:
        """Ids of the first context, up to where the policy starts to write."""
        return self._encode(self._text(messages, tools, generation_prompt=True))

    def observation(self, text: str, tools: list[dict[str, Any]]) -> list[int]:
        """Ids that follow a sampled turn: everything between its end-of-turn token and the next turn's first token."""
        key = json.dumps(tools)
        if key not in self._observation_frames:
            self._observation_frames[key] = self._observation_frame(tools)
        before, after = self._observation_frames[key]
        return self._encode(before + text + after)

    def turn(self, text: str) -> list[int]:
        """Ids of a scripted turn with its end-of-turn token. A sampled turn keeps the ids it was sampled with."""
        return self._encode(text + self.tokenizer.eos_token)

    def decode_turn(self, token_ids: list[int]) -> str:
        """Text of a sampled turn without its end-of-turn token."""
        body = token_ids[:-1] if token_ids and token_ids[-1] == self.end_of_turn_id else token_ids
        return str(self.tokenizer.decode(body, skip_special_tokens=False))

    def _observation_frame(self, tools: list[dict[str, Any]]) -> tuple[str, str]:
        """What the template puts before and after an observation's text."""
        turn = self._text(_BASE, tools, generation_prompt=False)
        whole = self._text([*_BASE, {"role": "tool", "content": _MARK}], tools, generation_prompt=True)
        end = turn.rindex(self.tokenizer.eos_token) + len(self.tokenizer.eos_token)
        if whole[:end] != turn[:end]:
            raise ValueError("the chat template rewrites earlier turns: appending to a sampled turn is not exact")
        before, mark, after = whole[end:].partition(_MARK)
        if not mark:
            raise ValueError("the chat template does not render a tool message's content as it is")
        return before, after

    def _text(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], generation_prompt: bool) -> str:
        rendered = self.tokenizer.apply_chat_template(
            messages, tools=tools or None, add_generation_prompt=generation_prompt, tokenize=False
        )
        return str(rendered)

    def _encode(self, text: str) -> list[int]:
        if text not in self._ids:
            if len(self._ids) >= _MAX_CACHED:
                self._ids.clear()
            self._ids[text] = list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        return list(self._ids[text])
