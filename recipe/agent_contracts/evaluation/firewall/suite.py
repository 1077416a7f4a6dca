"""A data file as the firewall reads it: each task once, taken apart into what can be compared.

Reads what the trainer's schema and the public task already hold (`objective`, `files`, `repository`, `date`); what a
domain does not have is None, and its check is not applicable. Identifiers are left out of what is compared: they
differ in every file by construction, so a copy under a new name would otherwise look new.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from recipe.agent_contracts.canonical import sha256_file, sha256_json
from recipe.agent_contracts.config.dataset import Row, read_rows
from recipe.agent_contracts.errors import ContractViolation

IDENTIFIERS = ("task_id", "family", "template", "split", "seed")
CANARY_KEY = b"agent_contracts.canary"
"""Where a parquet file's metadata carry the canary."""


class SuiteTask(msgspec.Struct, frozen=True, kw_only=True):
    """One task of a file."""

    task_id: str
    domain: str
    environment: str
    """`<domain>/<family>`."""
    template: str
    repository: str | None
    date: str | None
    """ISO 8601 calendar date."""
    text: str
    """What is asked: the public task's `objective`, or the prompt without its system messages."""
    files: dict[str, str] | None
    """Initial content by file name."""
    public_hash: str
    """Of the public task without its identifiers."""
    grader_hash: str
    """Of the hidden grader without its identifiers."""
    answers: str
    """The grader as text: which words of the task are its values."""
    raw: str
    """The whole row, for finding strings in it."""

    @property
    def content(self) -> str:
        """The text and the initial files."""
        return "\n".join([self.text, *(f"{name}\n{body}" for name, body in sorted((self.files or {}).items()))])


class Suite(msgspec.Struct, frozen=True):
    """One data file."""

    path: str
    file_hash: str
    canary: str | None
    """What the file's metadata declares."""
    tasks: list[SuiteTask]


def read_suite(path: Path) -> Suite:
    """Read a parquet file. Rows that play one task in several decodings count once.

    Raises:
        ContractViolation: ``preflight.data`` when the file cannot be read, ``firewall.data`` when a task is no JSON
            object.
    """
    import pyarrow.parquet as pq

    tasks: dict[tuple[str, str], SuiteTask] = {}
    for row in read_rows(path):
        task = _task(path, row)
        tasks.setdefault((task.task_id, task.public_hash), task)
    canary = (pq.read_schema(path).metadata or {}).get(CANARY_KEY)
    return Suite(str(path), sha256_file(path), None if canary is None else canary.decode(), list(tasks.values()))


def public_hash(task: dict[str, Any]) -> str:
    """`sha256:<hex>` of a public task without its identifiers."""
    return sha256_json({name: value for name, value in task.items() if name not in IDENTIFIERS})


def _task(path: Path, row: Row) -> SuiteTask:
    info = row["extra_info"]
    public = _object(path, info["task"], info["task_id"])
    truth = str((row["reward_model"] or {}).get("ground_truth"))
    domain = row["data_source"].split("/", 1)[0]
    asked = [message["content"] for message in row["prompt"] if message["role"] != "system"]
    return SuiteTask(
        task_id=str(info["task_id"]),
        domain=domain,
        environment=f"{domain}/{info['family']}",
        template=str(info["template"]),
        repository=public.get("repository"),
        date=info.get("date"),
        text=public.get("objective") or "\n".join(asked),
        files=public.get("files"),
        public_hash=public_hash(public),
        grader_hash=_grader_hash(truth),
        answers=_spoken(truth),
        raw=json.dumps(row, default=str, ensure_ascii=False),
    )


def _object(path: Path, text: str, task_id: object) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ContractViolation(
            "firewall.data", "extra_info.task as JSON", f"{error} in {task_id}", str(path)
        ) from None
    if not isinstance(found, dict):
        raise ContractViolation(
            "firewall.data", "a JSON object in extra_info.task", f"{text[:40]} in {task_id}", str(path)
        )
    return found


def _grader(truth: str) -> Any:
    """A grader as its JSON value, or as the text that it is."""
    try:
        return json.loads(truth)
    except ValueError:
        return truth


def _grader_hash(truth: str) -> str:
    grader = _grader(truth)
    return public_hash(grader) if isinstance(grader, dict) else sha256_json(grader)


def _spoken(truth: str) -> str:
    """All strings inside a grader, its task id and the names of its fields left out."""
    grader = _grader(truth)
    if isinstance(grader, dict):
        grader = [value for name, value in grader.items() if name not in IDENTIFIERS]
    return " ".join(_strings(grader))


def _strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for name, inner in value.items() for text in (str(name), *_strings(inner))]
    if isinstance(value, list):
        return [text for inner in value for text in _strings(inner)]
    return [str(value)]
