"""verl's own tool parsers and ours: every format is there, and both read a plain call alike."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from verl.experimental.agent_loop.tool_parser import ToolParser
from verl.tools.schemas import OpenAIFunctionToolSchema

from recipe.agent_contracts.transition.parsers import PARSERS
from tests.formats import written
from tests.support import case

PARAMETERS = {
    "type": "object",
    "properties": {
        "q": {"type": "string", "description": "text"},
        "n": {"type": "integer", "description": "a number"},
        "exact": {"type": "boolean", "description": "a truth value"},
    },
    "required": ["q"],
}
TOOLS = {"search": PARAMETERS, "wipe": {"type": "object", "properties": {}}}

every_parser = pytest.mark.parametrize("parser", PARSERS.values(), ids=PARSERS)


def verl_calls(parser, text):
    """What verl's parser of the same format reads."""
    tokenizer = SimpleNamespace(decode=lambda ids, **_: text, pad_token="<pad>", convert_tokens_to_ids=lambda token: 0)
    function = {"name": "search", "description": "d", "parameters": PARAMETERS}
    tools = [OpenAIFunctionToolSchema.model_validate({"type": "function", "function": function})]

    async def extract():
        return await ToolParser.get_tool_parser(parser.format, tokenizer).extract_tool_calls([0], tools)

    _, calls = asyncio.run(extract())
    return [(call.name, json.loads(call.arguments)) for call in calls]


def test_every_format_of_verl_has_a_strict_parser():
    assert {parser.format for parser in PARSERS.values()} == set(ToolParser._registry)


@every_parser
@pytest.mark.parametrize("args", [{"q": "tide tables"}, {"q": "x", "n": 3, "exact": True}, {"q": "a, b: {c}"}], ids=str)
def test_a_plain_call_is_read_as_verl_reads_it(parser, args):
    call = written(parser, "search", *args.items())
    # verl's expression needs the header, which the prompt has opened when nothing stands before the call.
    header = "<|start|>assistant" if parser.format == "gpt-oss" else ""
    assert verl_calls(parser, header + call) == [("search", args)]
    for turn in {call, header + call}:
        action = parser.parse(turn, TOOLS)
        assert (action.name, action.args) == ("search", args)


def test_verl_executes_what_was_only_mused_about_and_ours_does_not():
    h14 = case("H14")
    parser = PARSERS["hermes-strict-v1"]
    assert [name for name, _ in verl_calls(parser, h14["input"]["turn"])] == h14["check"]["wrong_calls"]
    assert parser.parse(h14["input"]["turn"], TOOLS).name == h14["check"]["calls"][0]["name"]
