"""Rendering by appending only."""

import pytest

from recipe.agent_contracts.cold_start.tokenizer import build_tokenizer
from recipe.agent_contracts.transition.rendering import ChatTemplateRenderer

PARAMETERS = {"type": "object", "properties": {}}
TOOLS = [{"type": "function", "function": {"name": "look", "description": "d", "parameters": PARAMETERS}}]
MESSAGES = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


@pytest.fixture
def restored_template(tokenizer):
    template = tokenizer.chat_template
    yield tokenizer
    tokenizer.chat_template = template


def test_context_plus_observation_is_what_the_template_gives_for_the_whole_conversation(tokenizer):
    renderer = ChatTemplateRenderer(tokenizer)
    sampled = tokenizer("abc<|im_end|>", add_special_tokens=False)["input_ids"]
    appended = renderer.initial(MESSAGES, TOOLS) + sampled + renderer.observation("port=80", TOOLS)
    conversation = [*MESSAGES, {"role": "assistant", "content": "abc"}, {"role": "tool", "content": "port=80"}]
    whole = tokenizer.apply_chat_template(conversation, tools=TOOLS, add_generation_prompt=True, tokenize=False)
    assert tokenizer.decode(appended) == whole


def test_tools_are_part_of_what_the_model_sees(tokenizer):
    renderer = ChatTemplateRenderer(tokenizer)
    assert renderer.initial(MESSAGES, TOOLS) != renderer.initial(MESSAGES, [])


def test_the_same_text_gives_the_same_ids_again_and_the_cache_is_not_shared(tokenizer):
    renderer = ChatTemplateRenderer(tokenizer)
    first = renderer.observation("x", TOOLS)
    first.append(-1)
    assert renderer.observation("x", TOOLS) == first[:-1]


@pytest.mark.parametrize(
    ("template", "error"),
    [
        ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", "does not end an assistant turn"),
        (
            "{% for m in messages %}{% if m.role != 'assistant' or loop.last %}{{ m.content }}{% endif %}"
            "<|im_end|>{% endfor %}",
            "rewrites earlier turns",
        ),
        (
            "{% for m in messages %}{% if m.role != 'tool' %}{{ m.content }}{% endif %}<|im_end|>{% endfor %}",
            "does not render a tool message",
        ),
    ],
)
def test_a_template_that_cannot_be_appended_to_is_refused(restored_template, template, error):
    restored_template.chat_template = template
    with pytest.raises(ValueError, match=error):
        ChatTemplateRenderer(restored_template).observation("x", TOOLS)
