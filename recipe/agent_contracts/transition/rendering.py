"""Text to token ids, only ever by appending: the sampled ids of a turn are kept, never rendered again.

Decode then encode is not the identity for BPE, so a context that is rebuilt from text trains on ids that nobody
sampled. Here the context grows by the engine's ids and by the ids of the new message alone.
"""

from __future__ import annotations

from typing import Any

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
        self._cache: dict[tuple[str, str], list[int]] = {}
        if tokenizer.eos_token not in self._text(_BASE, [], generation_prompt=False):
            raise ValueError(f"the chat template does not end an assistant turn with {tokenizer.eos_token!r}")

    def initial(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> list[int]:
        """Ids of the first context, up to where the policy starts to write."""
        return self._encode(self._text(messages, tools, generation_prompt=True))

    def observation(self, text: str, tools: list[dict[str, Any]]) -> list[int]:
        """Ids that follow a sampled turn: everything between its end-of-turn token and the next turn's first token."""
        before = self._text(_BASE, tools, generation_prompt=False)
        after = self._text([*_BASE, {"role": "tool", "content": text}], tools, generation_prompt=True)
        end = before.rindex(self.tokenizer.eos_token) + len(self.tokenizer.eos_token)
        if after[:end] != before[:end]:
            raise ValueError("the chat template rewrites earlier turns: appending to a sampled turn is not exact")
        return self._encode(after[end:])

    def decode_turn(self, token_ids: list[int]) -> str:
        """Text of a sampled turn without its end-of-turn token."""
        body = token_ids[:-1] if token_ids and token_ids[-1] == self.end_of_turn_id else token_ids
        return str(self.tokenizer.decode(body, skip_special_tokens=False))

    def _text(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], generation_prompt: bool) -> str:
        rendered = self.tokenizer.apply_chat_template(
            messages, tools=tools or None, add_generation_prompt=generation_prompt, tokenize=False
        )
        return str(rendered)

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
