"""What a go/no-go gate is: it sees every recorded episode of a run once, then says what it found.

A gate that could not be measured is not passed. `not_applicable` is the experiment's word, declared with a reason
before the first rollout (`contract.evaluation.gates_not_applicable`), never a gate's own.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec
import yaml

from recipe.agent_contracts.errors import ContractViolation, RecordCorrupt
from recipe.agent_contracts.evaluation.logged import StepMetrics, read_metrics
from recipe.agent_contracts.policy.registry import Registry
from recipe.agent_contracts.transition.trajectory import TurnRecord
from recipe.agent_contracts.update.record import UpdateRecord, UpdateRow, read_updates

Read = TypeVar("Read")


class Status(StrEnum):
    """What came of a gate."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_MEASURED = "not_measured"
    NOT_APPLICABLE = "not_applicable"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One gate's result."""

    gate: str
    """`G01` to `G19`."""
    name: str
    status: Status
    figure: str
    """What was measured, in words with its unit. Empty: nothing was."""
    tolerance: str
    evidence: str
    """Path in the run folder, or the first counterexample."""


class Run:
    """A run folder as the gates read it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def reading(self, name: str, read: Callable[[Path], Read]) -> Read:
        """What a function reads of a file of the run.

        Raises:
            RecordCorrupt: ``evaluation.run``, naming the file, when it is damaged.
        """
        try:
            return read(self.folder)
        except (ValueError, yaml.YAMLError, sqlite3.Error) as error:
            path = str(self.folder / name)
            raise RecordCorrupt(
                "evaluation.run", "a readable file", f"{type(error).__name__}: {error}", path
            ) from error

    @functools.cached_property
    def experiment(self) -> dict[str, Any]:
        """The preregistered configuration.

        Raises:
            ContractViolation: ``evaluation.run`` when the folder holds no run.
        """
        path = self.folder / "experiment.yaml"
        if not path.exists():
            raise ContractViolation("evaluation.run", "experiment.yaml", "none", str(self.folder))
        loaded: dict[str, Any] = self.reading(path.name, lambda folder: yaml.safe_load(path.read_text()))
        return loaded

    @property
    def contract(self) -> dict[str, Any]:
        section: dict[str, Any] = self.experiment["contract"]
        return section

    def require(self, needed: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """The contract, once it holds the keys of each section that its reader needs.

        Raises:
            ContractViolation: ``evaluation.run``, naming what it lacks.
        """
        try:
            missing = [
                f"{section}.{key}"
                for section, keys in needed.items()
                for key in keys
                if key not in self.contract[section]
            ]
        except (KeyError, TypeError) as error:
            missing = [f"{type(error).__name__}: {error}"]
        if missing:
            expected = "an experiment.yaml with a whole section `contract`"
            raise ContractViolation(
                "evaluation.run", expected, f"without {missing}", str(self.folder / "experiment.yaml")
            )
        return self.contract

    @functools.cached_property
    def updates(self) -> list[UpdateRecord]:
        return list(read_updates(self.folder))

    @functools.cached_property
    def trained(self) -> dict[str, tuple[UpdateRecord, UpdateRow]]:
        """The update that used an episode, by trajectory id; the last one, if several did."""
        return {row.trajectory_id: (update, row) for update in self.updates for row in update.rows}

    @functools.cached_property
    def metrics(self) -> list[StepMetrics]:
        return read_metrics(self.folder)

    @functools.cached_property
    def registry(self) -> Registry:
        return Registry(self.folder)

    def audit(self, name: str, kind: type[Read]) -> Read | None:
        """`audits/<name>.json`, written by the check of that name, as far as `kind` asks. None: it was not run.

        Raises:
            RecordCorrupt: ``evaluation.run``, naming the file, when it is not that.
        """
        path = self.folder / "audits" / f"{name}.json"
        if not path.exists():
            return None
        return self.reading(f"audits/{name}.json", lambda folder: msgspec.json.decode(path.read_bytes(), type=kind))


class Gate:
    """One gate. A subclass sets the class variables and says what it found."""

    id: ClassVar[str]
    name: ClassVar[str]
    tolerance: ClassVar[str] = "0"
    evidence: ClassVar[str] = "trajectories/"

    def __init__(self, run: Run) -> None:
        self.run = run

    def see(self, turns: list[TurnRecord]) -> None:
        """Look at one recorded episode. Called once for each, in the order of the records."""

    def finding(self) -> Finding:
        """What was found, after every episode was seen."""
        raise NotImplementedError

    def tolerance_text(self) -> str:
        """The tolerance, where the experiment decides it."""
        return self.tolerance

    def _passed(self, figure: str) -> Finding:
        return self._found(Status.PASSED, figure, self.evidence)

    def _failed(self, figure: str, evidence: str) -> Finding:
        return self._found(Status.FAILED, figure, evidence)

    def _not_measured(self, why: str) -> Finding:
        return self._found(Status.NOT_MEASURED, "", why)

    def _found(self, status: Status, figure: str, evidence: str) -> Finding:
        bound = self.tolerance_text()
        return Finding(gate=self.id, name=self.name, status=status, figure=figure, tolerance=bound, evidence=evidence)


class CountingGate(Gate):
    """A gate that counts what must not be there, out of what it looked at."""

    unit: ClassVar[str]
    """What is looked at: `episodes`, `sampled tokens`."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.looked_at = 0
        self.bad = 0
        self.first: str = ""

    def count(self, good: bool, where: str) -> None:
        """Look at one; `where` names it if it is bad."""
        self.looked_at += 1
        if not good:
            self.bad += 1
            self.first = self.first or where

    def finding(self) -> Finding:
        figure = f"{self.bad} of {self.looked_at} {self.unit}"
        if self.looked_at == 0:
            return self._not_measured(f"the run holds no {self.unit}")
        return self._failed(figure, self.first) if self.bad else self._passed(figure)
