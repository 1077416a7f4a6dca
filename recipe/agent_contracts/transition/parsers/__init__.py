"""Strict action parsers by version: one for each tool-call format that verl 0.9.1 ships.

The experiment names its parser (`contract.policy.parser`) and every manifest records it. A change of behaviour is a
new version beside the old one. The outcomes are documented in docs/actions.md, one for each kind of turn.
"""

from __future__ import annotations

from recipe.agent_contracts.transition.parsers.base import StrictParser
from recipe.agent_contracts.transition.parsers.hermes import HermesParser
from recipe.agent_contracts.transition.parsers.markup import GlmParser, MiniMaxParser, Qwen3CoderParser, SeedParser
from recipe.agent_contracts.transition.parsers.special_tokens import (
    DeepSeekV4Parser,
    Gemma4Parser,
    GptOssParser,
    KimiParser,
)

PARSERS: dict[str, StrictParser] = {
    parser.version: parser
    for parser in (
        HermesParser(),
        Qwen3CoderParser(),
        GlmParser(),
        SeedParser(),
        MiniMaxParser(),
        KimiParser(),
        DeepSeekV4Parser(),
        Gemma4Parser(),
        GptOssParser(),
    )
}
"""By version. Parsers keep no state, so one instance serves every episode."""

DEFAULT = HermesParser.version


def parser_named(version: str) -> StrictParser:
    """The parser of a version, e.g. `hermes-strict-v1`.

    Raises:
        ValueError: naming the versions that exist.
    """
    if version not in PARSERS:
        raise ValueError(f"no action parser {version!r}; known: {', '.join(PARSERS)}")
    return PARSERS[version]
