"""Episodes as token ids: the prompt, the policy's turns, and the observations between them.

This is the text protocol that every other rollout of the policy must follow. An observation is appended as exactly
what the chat template gives for a `tool` message after an assistant message, and the policy's own tokens are never
tokenised again.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from recipe.agent_contracts.cold_start.tokenizer import END_OF_TURN
from recipe.agent_contracts.transition.envs.terminal.demonstrations import demonstrate
from recipe.agent_contracts.transition.envs.terminal.env import TerminalEnv
from recipe.agent_contracts.transition.envs.terminal.generator import Scenario
from recipe.agent_contracts.transition.envs.terminal.task import TerminalTask, messages
from recipe.agent_contracts.transition.envs.terminal.tools import TOOLS, parameters_by_name
from recipe.agent_contracts.transition.parsers.hermes import HermesParser

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


class TokenSequence(NamedTuple):
    """One episode. Both lists have the episode's length."""

    ids: list[int]
    is_action: list[bool]
    """Whether the policy produced the token."""


def observation_text(observation: str) -> str:
    """What is appended after the policy's end of turn, up to where its next turn begins."""
    return f"\n<|im_start|>user\n<tool_response>\n{observation}\n</tool_response>{END_OF_TURN}\n<|im_start|>assistant\n"


class EpisodeEncoder:
    """Encodes prompts, turns and observations with one tokenizer, remembering the pieces that come back."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self._tokenizer = tokenizer
        self._parser = HermesParser()
        self._encode_cached = lru_cache(maxsize=100_000)(self._encode)
        self._tools: dict[tuple[str, ...], list[dict[str, Any]]] = {}

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def prompt(self, task: TerminalTask) -> list[int]:
        """Token ids of the prompt, tool lines included."""
        allowed = tuple(task.allowed_tools)
        if allowed not in self._tools:
            self._tools[allowed] = [tool.as_openai() for tool in TOOLS if tool.name in allowed]
        text = self._tokenizer.apply_chat_template(
            messages(task), tools=self._tools[allowed], add_generation_prompt=True, tokenize=False
        )
        return list(self._encode(str(text)))

    def turn(self, text: str) -> list[int]:
        """Token ids of one scripted turn with its end of turn."""
        return list(self._encode_cached(text + END_OF_TURN))

    def observation(self, observation: str) -> list[int]:
        """Token ids of one observation with the chat scaffold around it."""
        return list(self._encode_cached(observation_text(observation)))

    def demonstration(self, scenario: Scenario, rng: Random) -> TokenSequence:
        """Play one scripted demonstration and give its tokens, up to the turn that ends it."""
        task = scenario.task
        env = TerminalEnv({task.task_id: task})
        env.reset(task.task_id, seed=0)
        schemas = parameters_by_name(env.tools())
        ids = self.prompt(task)
        is_action = [False] * len(ids)
        for text in demonstrate(scenario, rng).turns:
            turn = self.turn(text)
            ids += turn
            is_action += [True] * len(turn)
            transition = env.step(self._parser.parse(text, schemas))
            if transition.done:
                break
            reply = self.observation(transition.observation)
            ids += reply
            is_action += [False] * len(reply)
        return TokenSequence(ids, is_action)
