"""The second program: worked answers for each operation, and independence of what it is held against."""

import ast
import json
from itertools import islice
from pathlib import Path

import pytest

from recipe.agent_contracts.transition.envs.terminal.generator import scenarios
from recipe.agent_contracts.transition.envs.terminal.task import SPLITS
from recipe.agent_contracts.verification import terminal_second_program as second_program
from recipe.agent_contracts.verification.labels import Fault
from recipe.agent_contracts.verification.terminal_second_program import Answer, answer, faults, is_whitespace_only

FILES = {"app.ini": "port=80\nmode=red", "base.ini": "port=81\nhost=blue"}


def export(files, declared="finish"):
    return json.dumps({"files": files, "declared": declared, "tool_calls": 1}).encode()


@pytest.mark.parametrize(
    ("objective", "files", "path", "content"),
    [
        ("Set port to 42 in app.ini.", FILES, "app.ini", "port=42\nmode=red"),
        ("42 is right for the port in app.ini.", FILES, "app.ini", "port=42\nmode=red"),
        ("Please remove mode from app.ini.", FILES, "app.ini", "port=80"),
        ("app.ini should not have port.", FILES, "app.ini", "mode=red"),
        ("Copy port from base.ini to app.ini.", FILES, "app.ini", "port=81\nmode=red"),
        ("app.ini has a wrong port; use the port of base.ini.", FILES, "app.ini", "port=81\nmode=red"),
        ("Use the port of app.ini in base.ini.", FILES, "base.ini", "port=80\nhost=blue"),
        ("Repair a.csv.", {"a.csv": "key,value\nport;80\nmode,red"}, "a.csv", "key,value\nport,80\nmode,red"),
        (
            "Fix the syntax error in a.log.",
            {"a.log": "error=12 core\nwarn 3 app"},
            "a.log",
            "error 12 core\nwarn 3 app",
        ),
        (
            "a.json is broken. Fix it.",
            {"a.json": '{"port" "80", "mode": "red"'},
            "a.json",
            '{"port": "80", "mode": "red"}',
        ),
        (
            "Write the warn value of a.log to b.txt.",
            {"a.log": "error 12 core\nwarn 34 app", "b.txt": "none"},
            "b.txt",
            "34",
        ),
        (
            "Repair a.json with the schema b.schema.",
            {"b.schema": "port:int=80\nmode:word=red\nunit:int=5", "a.json": '{"port": "blue", "unit": "7"}'},
            "a.json",
            '{"port": "80", "mode": "red", "unit": "7"}',
        ),
        (
            "Turn a.txt into b.csv.",
            {"a.txt": "port: 80\nmode: red", "b.csv": "none", "c.csv": "none"},
            "b.csv",
            "key,value\nport,80\nmode,red",
        ),
    ],
)
def test_the_answer_is_what_the_text_asks_for(objective, files, path, content):
    assert answer(objective, files) == Answer(path, content)


@pytest.mark.parametrize(
    "objective",
    ["Set port to 42 or 43 in app.ini.", "Set port in app.ini.", "Set port and mode to 4 in app.ini.", "Be good."],
)
def test_a_text_that_cannot_be_read_is_refused_and_not_guessed_at(objective):
    with pytest.raises(ValueError, match=r"named|asked"):
        answer(objective, FILES)


WANTED = Answer("app.ini", "port=42\nmode=red")
RIGHT = {**FILES, "app.ini": WANTED.content}


@pytest.mark.parametrize(
    ("files", "declared", "expected"),
    [
        (RIGHT, "finish", []),
        (RIGHT, "abstain", [Fault.NOT_DONE]),
        (RIGHT, None, [Fault.NOT_DONE]),
        (FILES, "finish", [Fault.NOT_DONE]),
        ({**RIGHT, "new": ""}, "finish", [Fault.SIDE_EFFECT]),
        ({**RIGHT, "base.ini": ""}, "finish", [Fault.BROKEN_RULE, Fault.SIDE_EFFECT]),
        ({"app.ini": WANTED.content}, "finish", [Fault.BROKEN_RULE, Fault.SIDE_EFFECT]),
        ({"base.ini": ""}, "finish", [Fault.BROKEN_RULE, Fault.NOT_DONE, Fault.SIDE_EFFECT]),
    ],
)
def test_faults_say_what_is_wrong_with_a_state(files, declared, expected):
    assert faults(WANTED, FILES, export(files, declared)) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (WANTED.content, False),
        (WANTED.content + "\n", True),
        (" port=42\r\nmode=red ", True),
        ("port=42mode=red", False),
        ("port = 42\nmode=red", False),
    ],
)
def test_white_space_alone_is_at_the_ends_of_lines(content, expected):
    assert is_whitespace_only(WANTED, FILES, export({**FILES, "app.ini": content})) == expected


def test_white_space_within_json_counts_too_and_another_fault_does_not():
    wanted, files = Answer("a.json", '{"port": "80"}'), {"a.json": "none", "b.json": "none"}
    compact = {**files, "a.json": '{"port":"80"}'}
    assert is_whitespace_only(wanted, files, export(compact))
    assert not is_whitespace_only(wanted, files, export(compact, declared=None))
    assert not is_whitespace_only(wanted, files, export({**compact, "b.json": ""}))
    assert not is_whitespace_only(wanted, files, export({"b.json": "none"}))


@pytest.mark.parametrize("split", SPLITS)
def test_it_reads_every_wording_that_the_generator_writes(split):
    templates = set()
    for scenario in islice(scenarios(split, seed=5), 1500):
        wanted = answer(scenario.task.objective, scenario.task.files)
        assert {wanted.path: wanted.content} == scenario.grader.expected, scenario.task.objective
        templates.add(scenario.task.template)
    assert len(templates) > (200 if split == "train" else 8)


def test_it_shares_no_code_with_generator_grader_or_verifier():
    tree = ast.parse(Path(second_program.__file__).read_text())
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {name for name in modules | names if name.startswith("recipe")} == {
        "recipe.agent_contracts.verification.labels"
    }
