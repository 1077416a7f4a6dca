"""Scaffolds from live objects: each thing that the model can notice changes its hash, and nothing else does."""

import copy

import pytest

from recipe.agent_contracts.cold_start.tokenizer import build_tokenizer
from recipe.agent_contracts.policy.live import Engine, ScaffoldBuilder, files_checksum, sampler_of
from recipe.agent_contracts.policy.manifest import Sampler, diff
from recipe.agent_contracts.transition.observations import ObservationLimit
from recipe.agent_contracts.transition.parsers.hermes import HermesParser
from tests.support import limits

ENGINE = Engine("vllm:1 torch:2", "float32", None, "processed_logprobs")
MESSAGES = [{"role": "system", "content": "Fix files."}, {"role": "user", "content": "Files: a"}]
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}, "old": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "read", "description": "Read.", "parameters": PARAMETERS}}]
SAMPLER = Sampler(1.0, 1.0, None)


class OtherParser(HermesParser):
    version = "hermes-strict-v2"


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


def scaffold(
    tokenizer,
    engine=ENGINE,
    messages=MESSAGES,
    tools=TOOLS,
    parser=None,
    budget=None,
    shown=None,
    sampler=SAMPLER,
    oracles=(),
):
    return ScaffoldBuilder(tokenizer, engine).build(
        messages, tools, parser or HermesParser(), budget or limits(), shown, sampler, oracles
    )


def with_template(tokenizer, change):
    other = copy.deepcopy(tokenizer)
    other.chat_template = change(tokenizer.chat_template)
    return other


def with_tool(**changes):
    return [{"type": "function", "function": {**TOOLS[0]["function"], **changes}}]


def changes(before, /, **other):
    return {change.field for change in diff(scaffold(before), scaffold(**{"tokenizer": before, **other}))}


@pytest.mark.parametrize(
    ("other", "fields"),
    [
        ({"messages": [{"role": "system", "content": "Fix files!"}, MESSAGES[1]]}, {"system_prompt_hash"}),
        ({"tools": with_tool(description="Reads.")}, {"tool_schema_hash"}),
        ({"tools": with_tool(name="look")}, {"tool_schema_hash"}),
        ({"tools": [*TOOLS, *with_tool(name="look")]}, {"tool_schema_hash"}),
        ({"oracles": ["read_file"]}, {"oracle_tools"}),
        ({"parser": OtherParser()}, {"parser_version"}),
        ({"budget": limits(step_budget=9)}, {"step_budget"}),
        ({"budget": limits(max_steps=3)}, {"max_steps"}),
        ({"shown": ObservationLimit(9, "end")}, {"observation_limit.max_chars", "observation_limit.keeps"}),
        ({"sampler": Sampler(0.7, 1.0, None)}, {"sampler.temperature"}),
        ({"engine": Engine("vllm:2 torch:2", "float32", None, "processed_logprobs")}, {"engine_build"}),
        ({"engine": Engine(ENGINE.build, "bfloat16", None, "processed_logprobs")}, {"engine_dtype"}),
        ({"engine": Engine(ENGINE.build, "float32", "fp8", "processed_logprobs")}, {"quantization"}),
        ({"engine": Engine(ENGINE.build, "float32", None, "raw_logprobs")}, {"logprobs_mode"}),
        ({"engine": Engine(ENGINE.build, "float32", None, "processed_logprobs", "json")}, {"grammar"}),
    ],
    ids=str,
)
def test_one_change_is_one_field(tokenizer, other, fields):
    assert changes(tokenizer, **other) == fields


@pytest.mark.parametrize(
    "change",
    [
        lambda template: template + " ",
        lambda template: template.replace("{{- '<|im_end|>\\n' -}}", "{{- ' <|im_end|>\\n' -}}"),
        lambda template: template.replace("ChatML in", "ChatML  in"),
    ],
    ids=["at the end", "in a turn", "in a comment"],
)
def test_whitespace_of_the_template_counts(tokenizer, change):
    other = with_template(tokenizer, change)
    assert other.chat_template != tokenizer.chat_template
    assert "chat_template_hash" in changes(tokenizer, tokenizer=other)


def test_a_template_that_prints_tools_otherwise_changes_the_tools_as_the_model_sees_them(tokenizer):
    other = with_template(tokenizer, lambda template: template.replace("', '", "','"))
    assert changes(tokenizer, tokenizer=other) == {"chat_template_hash", "tool_schema_hash"}


def test_the_order_of_a_messages_keys_does_not_count(tokenizer):
    reordered = [dict(reversed(message.items())) for message in MESSAGES]
    tools = [dict(reversed(tool.items())) for tool in with_tool()]
    assert changes(tokenizer, messages=reordered, tools=tools) == set()


def test_the_order_of_arguments_counts_where_the_template_prints_it(tokenizer):
    swapped = {**PARAMETERS, "properties": dict(reversed(PARAMETERS["properties"].items()))}
    assert changes(tokenizer, tools=with_tool(parameters=swapped)) == {"tool_schema_hash"}


def test_the_task_itself_is_not_part_of_the_policy(tokenizer):
    assert changes(tokenizer, messages=[MESSAGES[0], {"role": "user", "content": "Files: b"}]) == set()


def test_a_tokenizer_that_splits_otherwise_is_another_one(tokenizer):
    from tokenizers import pre_tokenizers

    other = copy.deepcopy(tokenizer)
    other.backend_tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    assert "tokenizer_revision" in changes(tokenizer, tokenizer=other)


def test_padding_of_an_earlier_call_is_not_part_of_the_tokenizer(tokenizer):
    other = copy.deepcopy(tokenizer)
    other(["finish", "finish finish"], padding=True, truncation=True, max_length=2)
    assert changes(tokenizer, tokenizer=other) == set()


def test_the_sampler_is_what_the_engine_applies():
    sent = {"temperature": 1, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True, "max_tokens": 5}
    assert sampler_of(sent) == SAMPLER
    assert sampler_of({**sent, "top_k": 20}).top_k == 20


def test_a_sampling_parameter_that_no_manifest_names_is_refused():
    with pytest.raises(ValueError, match="min_tokens"):
        sampler_of({"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_tokens": 3})


def test_the_checksum_of_a_folder_knows_names_and_contents_and_no_other_file(tmp_path):
    def folder(name, files):
        (tmp_path / name).mkdir()
        for file, content in files.items():
            (tmp_path / name / file).write_text(content)
        return files_checksum(tmp_path / name)

    first = folder("a", {"1.safetensors": "x", "2.bin": "y", "config.json": "{}"})
    assert folder("b", {"config.json": "{}", "2.bin": "y", "1.safetensors": "x", "notes.txt": "n"}) == first
    assert folder("c", {"1.safetensors": "y", "2.bin": "x", "config.json": "{}"}) != first
    assert folder("d", {"1.safetensors": "x", "2.bin": "y", "config.json": "{ }"}) != first


def test_a_folder_without_weights_has_no_checksum(tmp_path):
    with pytest.raises(FileNotFoundError, match="weight file"):
        files_checksum(tmp_path)
