"""The tokenizer: ids that survive saving, tool lines from schemas, and deltas equal to the chat template's."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from recipe.agent_contracts.cold_start.episodes import open_scenario
from recipe.agent_contracts.cold_start.tokenizer import MACROS, SPECIALS, build_tokenizer, load_tokenizer
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.transition.env import ToolSchema
from recipe.agent_contracts.transition.envs.terminal.demonstrations import call
from recipe.agent_contracts.transition.envs.terminal.formats import KEYS, LEVELS, STEMS, WORDS
from recipe.agent_contracts.transition.envs.terminal.generator import make_scenario, scenarios
from recipe.agent_contracts.transition.envs.terminal.task import SPLITS, messages
from recipe.agent_contracts.transition.envs.terminal.tools import TOOLS
from recipe.agent_contracts.transition.rendering import ChatTemplateRenderer

MAX_PROMPT_TOKENS = 130
FIXED_STRINGS = [
    "Set port to 80 in app.ini.",
    '{"port": "80", "mode": "red"}',
    'key,value\nport,80\nmode: red\n[x] "é" \\ \\n ünïcode 12345',
    call("write_file", path="app.json", content='{"port": "80"}') + "<|im_end|>\n",
]


@pytest.fixture(scope="module")
def folder(tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save_pretrained(path)
    return path


def ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def rendered(tokenizer: Any, chat: list[dict[str, Any]], tools: list[ToolSchema], generate: bool = True) -> str:
    schemas = [tool.as_openai() for tool in tools]
    return str(tokenizer.apply_chat_template(chat, tools=schemas, add_generation_prompt=generate, tokenize=False))


def test_no_id_is_outside_the_vocabulary(tokenizer: PreTrainedTokenizerFast) -> None:
    assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer)))


def test_training_it_again_gives_the_same_vocabulary(tokenizer: PreTrainedTokenizerFast) -> None:
    assert build_tokenizer().get_vocab() == tokenizer.get_vocab()


def test_ids_survive_saving_and_loading(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    for loaded in (load_tokenizer(folder), AutoTokenizer.from_pretrained(folder)):
        assert len(loaded) == len(tokenizer)
        assert loaded.chat_template == tokenizer.chat_template
        assert (loaded.eos_token, loaded.pad_token) == ("<|im_end|>", "<|endoftext|>")
        for text in FIXED_STRINGS:
            assert ids(loaded, text) == ids(tokenizer, text)


def test_a_folder_with_a_model_config_is_refused(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    with pytest.raises(ContractViolation, match=r"config\.json"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("text", FIXED_STRINGS)
def test_decoding_gives_the_text_back(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    assert tokenizer.decode(ids(tokenizer, text)) == text


@pytest.mark.parametrize("text", [*SPECIALS, *MACROS, "\n", *KEYS, *WORDS, *STEMS, *LEVELS, "42", '\\"', '": "'])
def test_atoms_are_one_token(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    assert len(ids(tokenizer, text)) == 1


def test_a_word_is_the_same_token_in_every_format(tokenizer: PreTrainedTokenizerFast) -> None:
    word = ids(tokenizer, "omega")[0]
    for text in ("x=omega\n", '{"x": "omega"}', r"{\"x\": \"omega\"}", "x,omega\ny", "to omega in", "x: omega"):
        assert word in ids(tokenizer, text)


def test_each_tool_is_one_line(tokenizer: PreTrainedTokenizerFast) -> None:
    chat = [{"role": "system", "content": "Fix."}, {"role": "user", "content": "Do."}]
    assert rendered(tokenizer, chat, list(TOOLS)) == (
        "<|im_start|>system\nFix.\nlist_files()\nread_file(path)\nwrite_file(path, content)\n"
        "replace_in_file(path, old, new)\nfinish()\nabstain()<|im_end|>\n"
        "<|im_start|>user\nDo.<|im_end|>\n<|im_start|>assistant\n"
    )


def test_tools_are_shown_without_a_system_message_too(tokenizer: PreTrainedTokenizerFast) -> None:
    text = rendered(tokenizer, [{"role": "user", "content": "Do."}], [TOOLS[0]])
    assert text.startswith("<|im_start|>system\nlist_files()<|im_end|>\n<|im_start|>user\n")


def test_without_tools_there_are_no_tool_lines(tokenizer: PreTrainedTokenizerFast) -> None:
    chat = [{"role": "system", "content": "Fix."}]
    assert tokenizer.apply_chat_template(chat, tokenize=False) == "<|im_start|>system\nFix.<|im_end|>\n"


@pytest.mark.parametrize(
    ("parameters", "line"),
    [
        ({"properties": {"file": {"type": "string"}}, "required": ["file"]}, "read_file(file)"),
        ({"properties": {"path": {"type": "string"}}}, "read_file(path?)"),
        ({"properties": {"path": {"type": "integer"}}, "required": ["path"]}, "read_file(path:integer)"),
        ({"properties": {}}, "read_file()"),
    ],
)
def test_a_changed_schema_changes_what_the_model_sees(
    tokenizer: PreTrainedTokenizerFast, parameters: dict[str, Any], line: str
) -> None:
    chat = [{"role": "system", "content": "Fix."}]
    original = TOOLS[1]
    changed = msgspec.structs.replace(original, parameters={"type": "object", **parameters})
    assert rendered(tokenizer, chat, [changed]) != rendered(tokenizer, chat, [original])
    assert f"\n{line}<|im_end|>" in rendered(tokenizer, chat, [changed])


@pytest.mark.parametrize("observation", ["ok", "", "port=80\nmode=red", '{"a": "b"}', "error: bad_json", "x\n"])
def test_an_appended_observation_equals_the_template(tokenizer: PreTrainedTokenizerFast, observation: str) -> None:
    renderer = ChatTemplateRenderer(tokenizer)
    task = make_scenario("train", 0).task
    tools = [tool.as_openai() for tool in TOOLS]
    turn = call("read_file", path="app.ini")
    chat: list[dict[str, Any]] = [*messages(task), {"role": "assistant", "content": turn}]
    whole = rendered(tokenizer, [*chat, {"role": "tool", "content": observation}], list(TOOLS))
    appended = renderer.initial(messages(task), tools) + renderer.turn(turn) + renderer.observation(observation, tools)
    assert appended == ids(tokenizer, whole)
    frame = "\n<|im_start|>user\n<tool_response>\n{}\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    assert whole.endswith(turn + "<|im_end|>" + frame.format(observation))


def test_a_structured_tool_call_renders_as_the_policy_writes_it(tokenizer: PreTrainedTokenizerFast) -> None:
    function = {"name": "write_file", "arguments": {"path": "a.json", "content": '{"x": "<1>"}'}}
    chat = [{"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}]
    expected = call("write_file", path="a.json", content='{"x": "<1>"}')
    assert rendered(tokenizer, chat, [], generate=False) == f"<|im_start|>assistant\n{expected}<|im_end|>\n"


def test_prompts_are_short(tokenizer: PreTrainedTokenizerFast) -> None:
    renderer = ChatTemplateRenderer(tokenizer)
    for split in SPLITS:
        for scenario in islice(scenarios(split, seed=1), 100):
            assert len(open_scenario(scenario, renderer).prompt_ids) <= MAX_PROMPT_TOKENS
