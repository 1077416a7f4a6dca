"""TerminalEnv: resets, tools, and refused or invalid actions that leave no trace."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.transition.actions import Action, InvalidReason
from recipe.agent_contracts.transition.envs.terminal.env import TerminalEnv
from recipe.agent_contracts.transition.envs.terminal.task import TerminalTask
from recipe.agent_contracts.transition.envs.terminal.tools import TOOL_NAMES, parameters_by_name
from recipe.agent_contracts.transition.envs.terminal.world import MAX_FILE_BYTES, MAX_NAME_BYTES
from recipe.agent_contracts.transition.parsers.hermes import HermesParser
from recipe.agent_contracts.transition.termination import Termination

FILES = {"app.ini": "port=80\nmode=red", "notes.txt": "aaa"}
ODD_NAMES = [
    "",
    "/etc/passwd",
    "..",
    "../app.ini",
    "a/../app.ini",
    "./app.ini",
    "a//b",
    "a/",
    "a\nb",
    "a\x00b",
    "a\x7fb",
    "a\u202eb",
    "\ud800",
    "n" * (MAX_NAME_BYTES + 1),
    "é" * 128,
]


def make_env(allowed: tuple[str, ...] = TOOL_NAMES, files: dict[str, str] | None = None) -> TerminalEnv:
    task = TerminalTask(
        task_id="t",
        family="set:ini->ini",
        operation="set",
        template="set/train/00",
        split="train",
        seed=0,
        objective="Set port to 81 in app.ini.",
        files=dict(FILES) if files is None else files,
        allowed_tools=list(allowed),
        step_budget=8,
        token_budget=320,
    )
    env = TerminalEnv({"t": task})
    env.reset("t", seed=0)
    return env


def tool(name: str, **args: Any) -> Action:
    return Action("tool", name, args)


def files_of(env: TerminalEnv) -> dict[str, str]:
    files: dict[str, str] = json.loads(env.export_state())["files"]
    return files


def assert_refused(env: TerminalEnv, action: Action, reason: str) -> None:
    before, version = env.export_state(), env.state_hash()
    transition = env.step(action)
    assert transition.observation == f"error: {reason}"
    assert env.export_state() == before
    assert transition.state_version == version == env.state_hash()
    assert not transition.done


def test_reset_gives_the_same_state_after_any_episode() -> None:
    env = make_env()
    before = env.export_state()
    env.step(tool("write_file", path="app.ini", content="x"))
    env.step(Action("finish", "finish", {}))
    assert env.reset("t", seed=99) == "Files: app.ini notes.txt\nSet port to 81 in app.ini."
    assert env.export_state() == before


def test_an_unknown_task_is_a_contract_violation() -> None:
    with pytest.raises(ContractViolation, match="known tasks"):
        make_env().reset("other", seed=0)


def test_stepping_before_reset_is_a_contract_violation() -> None:
    with pytest.raises(ContractViolation, match="reset before"):
        TerminalEnv({}).step(tool("list_files"))


def test_list_files_and_read_file_change_only_the_count() -> None:
    env = make_env()
    assert env.step(tool("list_files")).observation == "app.ini\nnotes.txt"
    assert env.step(tool("read_file", path="app.ini")).observation == FILES["app.ini"]
    assert files_of(env) == FILES
    assert json.loads(env.export_state())["tool_calls"] == 2


def test_write_file_creates_and_overwrites() -> None:
    env = make_env()
    assert env.step(tool("write_file", path="app.ini", content="new")).observation == "ok"
    assert env.step(tool("write_file", path="sub/b.txt", content="")).observation == "ok"
    assert files_of(env) == {**FILES, "app.ini": "new", "sub/b.txt": ""}


def test_the_task_itself_is_never_changed() -> None:
    env = make_env()
    env.step(tool("write_file", path="app.ini", content="new"))
    assert env.task.files == FILES


def test_replace_in_file_replaces_the_only_occurrence() -> None:
    env = make_env()
    assert env.step(tool("replace_in_file", path="app.ini", old="port=80", new="port=81")).observation == "ok"
    assert files_of(env)["app.ini"] == "port=81\nmode=red"


@pytest.mark.parametrize(
    ("path", "old", "reason"),
    [
        ("app.ini", "port=99", "no_match"),
        ("app.ini", "", "no_match"),
        ("app.ini", "o", "several_matches"),
        ("notes.txt", "aa", "several_matches"),
        ("gone.ini", "port", "no_file"),
    ],
)
def test_replace_in_file_refuses_anything_but_one_occurrence(path: str, old: str, reason: str) -> None:
    assert_refused(make_env(), tool("replace_in_file", path=path, old=old, new="x"), reason)


@pytest.mark.parametrize("name", ["finish", "abstain"])
def test_declaring_ends_the_episode_and_is_recorded(name: Any) -> None:
    env = make_env()
    transition = env.step(Action(name, name, {}))
    assert transition.termination is Termination.AGENT_FINISH
    assert json.loads(env.export_state())["declared"] == name
    with pytest.raises(ContractViolation, match="running episode"):
        env.step(tool("list_files"))


@pytest.mark.parametrize("reason", list(InvalidReason))
def test_an_invalid_turn_changes_nothing(reason: InvalidReason) -> None:
    assert_refused(make_env(), Action("invalid", invalid_reason=reason), reason)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_refused(name: str) -> None:
    reason = "bad_text" if name == "\ud800" else "bad_path"
    assert_refused(make_env(), tool("write_file", path=name, content="x"), reason)
    assert_refused(make_env(), tool("read_file", path=name), reason)
    assert_refused(make_env(), tool("replace_in_file", path=name, old="a", new="b"), reason)


def test_contents_are_limited_in_bytes() -> None:
    env = make_env()
    assert_refused(env, tool("write_file", path="a", content="é" * (MAX_FILE_BYTES // 2 + 1)), "too_large")
    assert_refused(env, tool("replace_in_file", path="app.ini", old="red", new="x" * MAX_FILE_BYTES), "too_large")
    assert_refused(env, tool("write_file", path="a", content="\udfff"), "bad_text")
    assert env.step(tool("write_file", path="a", content="x" * MAX_FILE_BYTES)).observation == "ok"


@pytest.mark.parametrize(
    "action",
    [
        tool("read_file"),
        tool("read_file", path="app.ini", extra="x"),
        tool("read_file", path=3),
        tool("list_files", path="app.ini"),
        Action("finish", "finish", {"why": "done"}),
    ],
)
def test_bad_arguments_are_refused_even_without_the_parser(action: Action) -> None:
    assert_refused(make_env(), action, "bad_arguments")


def test_a_tool_that_the_task_does_not_allow_is_unknown() -> None:
    env = make_env(allowed=("read_file", "finish"))
    assert [schema.name for schema in env.tools()] == ["read_file", "finish"]
    assert_refused(env, tool("write_file", path="app.ini", content="x"), "unknown_tool")
    assert_refused(env, tool("open_file", path="app.ini"), "unknown_tool")


def test_every_tool_has_a_closed_schema() -> None:
    for schema in make_env().tools():
        jsonschema.Draft202012Validator.check_schema(schema.parameters)
        assert schema.parameters["additionalProperties"] is False
        assert sorted(schema.parameters["required"]) == sorted(schema.parameters["properties"])


@given(st.text(max_size=60))
def test_any_text_is_survived_and_invalid_text_leaves_no_trace(text: str) -> None:
    env = make_env()
    before = env.export_state()
    action = HermesParser().parse(text, parameters_by_name(env.tools()))
    env.step(action)
    if action.kind == "invalid":
        assert env.export_state() == before


@given(st.lists(st.tuples(st.text(max_size=6), st.text(max_size=6)), max_size=6))
def test_a_step_is_a_function_of_state_and_action(writes: list[tuple[str, str]]) -> None:
    first, second = make_env(), make_env()
    for path, content in writes:
        action = tool("write_file", path=path, content=content)
        assert first.step(action) == second.step(action)
    assert first.export_state() == second.export_state()
