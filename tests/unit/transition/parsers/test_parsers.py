"""Every format has the same documented outcome for the same kind of turn (docs/actions.md)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.agent_contracts.transition.actions import InvalidReason
from recipe.agent_contracts.transition.parsers import DEFAULT, PARSERS, parser_named
from tests.formats import BODIES, written
from tests.support import case

TOOLS = {
    "search": {
        "type": "object",
        "properties": {
            "q": {"type": "string"},
            "n": {"type": "integer"},
            "ratio": {"type": "number"},
            "exact": {"type": "boolean"},
            "filter": {"type": "object"},
            "tags": {"type": "array"},
        },
        "required": ["q"],
        "additionalProperties": False,
    },
    "wipe": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    "finish": {"type": "object", "properties": {}, "additionalProperties": False},
    "abstain": {"type": "object", "properties": {}, "additionalProperties": False},
}
TAGGED = ["qwen3_coder", "glm", "seed", "minimax"]

every_parser = pytest.mark.parametrize("parser", PARSERS.values(), ids=PARSERS)


def outcome(parser, turn):
    action = parser.parse(turn, TOOLS)
    return action.kind if action.invalid_reason is None else action.invalid_reason


def thought(parser, text):
    """A thinking block, with what the format writes after it."""
    after = "<|start|>assistant" if parser.format == "gpt-oss" else "\n"
    return parser.thinking[0] + text + parser.thinking[1] + after


@every_parser
def test_one_call_alone_is_that_action(parser):
    given_args = {
        "q": "tide tables",
        "n": 3,
        "ratio": 0.5,
        "exact": True,
        "filter": {"a": {"b": [1, None]}},
        "tags": [],
    }
    action = parser.parse(written(parser, "search", *given_args.items()), TOOLS)
    assert (action.kind, action.name, action.args) == ("tool", "search", given_args)


@every_parser
@pytest.mark.parametrize("name", ["finish", "abstain"])
def test_finish_and_abstain_are_kinds_of_their_own(parser, name):
    assert outcome(parser, written(parser, name)) == name


@every_parser
def test_no_call_or_a_truncated_one_is_no_call(parser):
    call = written(parser, "search", ("q", "x"))
    assert outcome(parser, "") is InvalidReason.NO_CALL
    assert outcome(parser, "I am done.") is InvalidReason.NO_CALL
    for length in (len(parser.markers[0]), len(call) // 2, len(call) - 1):
        assert outcome(parser, call[:length]) is InvalidReason.NO_CALL


@every_parser
def test_several_calls_are_no_action(parser):
    call = written(parser, "finish")
    assert outcome(parser, call + call) is InvalidReason.SEVERAL_CALLS
    assert outcome(parser, call + "\n" + parser.markers[0]) is InvalidReason.SEVERAL_CALLS


@pytest.mark.parametrize("name", ["qwen3_coder", "seed", "minimax", "kimi", "deepseek_v4"])
def test_several_calls_between_one_pair_of_markers_are_no_action(name):
    parser = PARSERS[f"{name}-strict-v1"]
    opening, closing = parser.markers
    body = BODIES[name]("search", [("q", "x")])
    assert outcome(parser, opening + body + body + closing) is InvalidReason.SEVERAL_CALLS


@every_parser
@pytest.mark.parametrize("frame", ["Sure: {}", "{} Done.", "a{}b"])
def test_text_around_the_call_is_no_action(parser, frame):
    assert outcome(parser, frame.format(written(parser, "finish"))) is InvalidReason.TEXT_AROUND_CALL


@every_parser
def test_white_space_around_the_call_is_fine(parser):
    assert outcome(parser, "\n " + written(parser, "finish") + "\n") == "finish"


@every_parser
def test_a_call_inside_thinking_text_is_ignored_and_counted(parser):
    right = case("H14")["check"]["calls"][0]
    turn = thought(parser, "Maybe " + written(parser, "wipe", ("path", "/data")) + "? No.")
    action = parser.parse(turn + written(parser, right["name"], *right["arguments"].items()), TOOLS)
    assert {"name": action.name, "arguments": action.args} == right
    assert action.ignored_in_thinking == case("H14")["check"]["ignored_in_thinking"]


@every_parser
def test_an_unclosed_thinking_block_has_no_calls(parser):
    assert outcome(parser, parser.thinking[0] + written(parser, "finish")) is InvalidReason.UNCLOSED_THINKING


@every_parser
def test_thinking_that_the_prompt_opened_ends_at_its_closing_marker(parser):
    turn = "perhaps " + written(parser, "wipe", ("path", "/")) + parser.thinking[1] + written(parser, "finish")
    action = parser.parse(turn, TOOLS)
    if parser.prompt_may_open_thinking:
        assert (action.kind, action.ignored_in_thinking) == ("finish", 1)
    else:
        assert action.invalid_reason is InvalidReason.SEVERAL_CALLS


@every_parser
def test_an_unknown_tool_is_named(parser):
    action = parser.parse(written(parser, "rm", ("path", "/")), TOOLS)
    assert (action.invalid_reason, action.name) == (InvalidReason.UNKNOWN_TOOL, "rm")


@every_parser
@pytest.mark.parametrize(
    "pairs",
    [
        [],
        [("n", 1)],
        [("q", "x"), ("n", 1.5)],
        [("q", "x"), ("n", True)],
        [("q", "x"), ("exact", 1)],
        [("q", "x"), ("filter", [])],
        [("q", "x"), ("other", "y")],
    ],
    ids=str,
)
def test_arguments_that_the_schema_refuses_are_bad(parser, pairs):
    action = parser.parse(written(parser, "search", *pairs), TOOLS)
    assert (action.invalid_reason, action.name) == (InvalidReason.BAD_ARGUMENTS, "search")


@every_parser
def test_a_number_beyond_every_double_is_bad_arguments(parser):
    turn = written(parser, "search", ("q", "x"), ("ratio", 12345)).replace("12345", "1e400")
    assert outcome(parser, turn) is InvalidReason.BAD_ARGUMENTS


@every_parser
@pytest.mark.parametrize("spelled", ["NaN", "Infinity", "-Infinity", str(2**53 + 1), "9" * 5000, "01", "0x10", "1,000"])
def test_a_number_that_json_does_not_have_is_bad_json(parser, spelled):
    turn = written(parser, "search", ("q", "x"), ("n", 12345)).replace("12345", spelled)
    assert outcome(parser, turn) is InvalidReason.BAD_JSON


@every_parser
def test_a_parameter_given_twice_is_never_one_of_them(parser):
    expected = InvalidReason.BAD_SHAPE if parser.format in (*TAGGED, "deepseek_v4") else InvalidReason.BAD_JSON
    assert outcome(parser, written(parser, "search", ("q", "a"), ("q", "b"))) is expected


@every_parser
def test_a_key_given_twice_inside_a_value_is_bad_json(parser):
    turn = written(parser, "search", ("q", "x"), ("filter", {"aa": 1, "bb": 2})).replace("bb", "aa")
    assert outcome(parser, turn) is InvalidReason.BAD_JSON


@pytest.mark.parametrize("parser", [parser for parser in PARSERS.values() if parser.format != "gemma4"])
def test_half_a_character_is_bad_json_and_a_whole_one_is_read(parser):
    turn = written(parser, "search", ("q", "x"), ("filter", {"k": "EE"}))
    assert outcome(parser, turn.replace("EE", r"\ud800")) is InvalidReason.BAD_JSON
    action = parser.parse(turn.replace("EE", r"\ud83d\ude00"), TOOLS)
    assert action.args["filter"] == {"k": "😀"}


def test_gemma_has_no_escapes_a_backslash_is_itself():
    action = PARSERS["gemma4-strict-v1"].parse(r'<|tool_call>call:search{q:<|"|>\ud800<|"|>}<tool_call|>', TOOLS)
    assert action.args == {"q": r"\ud800"}


@every_parser
def test_braces_quotes_and_backslashes_in_text_are_text(parser):
    text = 'a } b { "c" \\n ] <b>&amp;</b> {{"x": 1}}'
    action = parser.parse(written(parser, "search", ("q", text), ("filter", {"x": {"y": {}}})), TOOLS)
    assert action.args == {"q": text, "filter": {"x": {"y": {}}}}


@pytest.mark.parametrize("name", [*TAGGED, "deepseek_v4"])
def test_a_string_parameter_is_never_read_as_json(name):
    parser = PARSERS[f"{name}-strict-v1"]
    for text in ("3", "null", "true", '{"a": 1}', " padded ", ""):
        assert parser.parse(written(parser, "search", ("q", text)), TOOLS).args == {"q": text}


@every_parser
@pytest.mark.parametrize("body", ["", "{}", "[1]", "search", "<function>", '{"name": 3}', "\n"])
def test_a_body_that_is_no_call_is_invalid(parser, body):
    assert parser.parse(parser.markers[0] + body + parser.markers[1], TOOLS).kind == "invalid"


pieces = st.sampled_from(
    [piece for parser in PARSERS.values() for piece in (*parser.markers, *parser.thinking, written(parser, "finish"))]
    + ["{", "}", '"', "<", ">", "\n", '<|"|>', "call:", "<function=", "</function>", "<arg_key>", "NaN", "\\"]
)


@every_parser
@given(turn=st.lists(pieces | st.text(max_size=5), max_size=8).map("".join))
def test_no_turn_makes_a_parser_raise(parser, turn):
    action = parser.parse(turn, TOOLS)
    assert (action.kind == "invalid") == (action.invalid_reason is not None)


names = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
plain = st.text(st.characters(exclude_categories=["Cs"], exclude_characters='<>|"'), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)


@every_parser
@given(text=plain, inner=st.dictionaries(names, values, max_size=3))
def test_what_is_written_is_read_back(parser, text, inner):
    action = parser.parse(written(parser, "search", ("q", text), ("filter", inner)), TOOLS)
    assert action.args == {"q": text, "filter": inner}


def test_a_parser_is_found_by_its_version_and_the_known_ones_are_named():
    assert parser_named(DEFAULT).version == "hermes-strict-v1"
    with pytest.raises(ValueError, match="qwen3_coder-strict-v1"):
        parser_named("hermes")
