"""How a model writes calls in each tool-call format: the inverse of the parsers, for tests."""

import json
from collections.abc import Callable
from typing import Any

_DSML = "\uff5cDSML\uff5c"
_QUOTE = '<|"|>'


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _hermes(name: str, pairs: list[tuple[str, Any]]) -> str:
    inner = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in pairs)
    return f'{{"name": {json.dumps(name)}, "arguments": {{{inner}}}}}'


def _qwen(name: str, pairs: list[tuple[str, Any]]) -> str:
    inner = "".join(f"<parameter={key}>\n{_text(value)}\n</parameter>\n" for key, value in pairs)
    return f"\n<function={name}>\n{inner}</function>\n"


def _seed(name: str, pairs: list[tuple[str, Any]]) -> str:
    inner = "".join(f"<parameter={key}>{_text(value)}</parameter>\n" for key, value in pairs)
    return f"\n<function={name}>\n{inner}</function>\n"


def _minimax(name: str, pairs: list[tuple[str, Any]]) -> str:
    inner = "".join(f'<parameter name="{key}">{_text(value)}</parameter>\n' for key, value in pairs)
    return f'\n<invoke name="{name}">\n{inner}</invoke>\n'


def _glm(name: str, pairs: list[tuple[str, Any]]) -> str:
    inner = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{_text(value)}</arg_value>\n" for key, value in pairs)
    return f"{name}\n{inner}"


def _object(pairs: list[tuple[str, Any]]) -> str:
    return "{" + ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in pairs) + "}"


def _kimi(name: str, pairs: list[tuple[str, Any]]) -> str:
    arguments = f"<|tool_call_argument_begin|>{_object(pairs)}<|tool_call_end|>"
    return f"<|tool_call_begin|>functions.{name}:0{arguments}"


def _gpt_oss(name: str, pairs: list[tuple[str, Any]]) -> str:
    return f"{name} <|constrain|>json<|message|>{_object(pairs)}"


def _deepseek(name: str, pairs: list[tuple[str, Any]]) -> str:
    inner = ""
    for key, value in pairs:
        is_text = "true" if isinstance(value, str) else "false"
        inner += f'<{_DSML}parameter name="{key}" string="{is_text}">{_text(value)}</{_DSML}parameter>\n'
    return f'\n<{_DSML}invoke name="{name}">\n{inner}</{_DSML}invoke>\n'


def _gemma_value(value: Any) -> str:
    if isinstance(value, str):
        return f"{_QUOTE}{value}{_QUOTE}"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_gemma_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_gemma_value, value)) + "]"
    return json.dumps(value)


def _gemma(name: str, pairs: list[tuple[str, Any]]) -> str:
    return f"call:{name}{{" + ",".join(f"{key}:{_gemma_value(value)}" for key, value in pairs) + "}"


BODIES: dict[str, Callable[[str, list[tuple[str, Any]]], str]] = {
    "hermes": _hermes,
    "qwen3_coder": _qwen,
    "glm": _glm,
    "seed": _seed,
    "minimax": _minimax,
    "kimi": _kimi,
    "deepseek_v4": _deepseek,
    "gemma4": _gemma,
    "gpt-oss": _gpt_oss,
}
"""What stands between the call markers, by format."""


def written(parser: Any, name: str, *pairs: tuple[str, Any]) -> str:
    """One call of a tool in a parser's format, markers included."""
    opening, closing = parser.markers
    return opening + BODIES[parser.format](name, list(pairs)) + closing
