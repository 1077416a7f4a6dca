"""`agent-contracts firewall`: what a training file and a held-out file share, before results are believed."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from recipe.agent_contracts.commands.output import console, fail
from recipe.agent_contracts.errors import ContractViolation

if TYPE_CHECKING:
    from recipe.agent_contracts.evaluation.firewall.audit import Firewall
    from recipe.agent_contracts.evaluation.firewall.rules import Check

_STYLES = {"passed": "green", "failed": "red", "not_applicable": "yellow"}


def firewall(
    train: Annotated[Path | None, typer.Argument(help="Training parquet; with --run the experiment names it")] = None,
    heldout: Annotated[Path | None, typer.Argument(help="Held-out parquet")] = None,
    run: Annotated[
        Path | None, typer.Option(help="Audit a run's files and training episodes", exists=True, file_okay=False)
    ] = None,
    cutoff: Annotated[
        datetime.datetime | None, typer.Option(formats=["%Y-%m-%d"], help="First day of the held-out period")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Also write the audit there, as JSON")] = None,
) -> None:
    """Overlap, near duplicates, dates, canaries and network policy of a train/held-out pair. Exit code 1: one fails.

    With --run the result is the run's audits/firewall.json, with the hash of its scaffold lock.
    """
    from recipe.agent_contracts.evaluation.firewall.audit import FILE, audit, data_files, declared_cutoff, write_audit
    from recipe.agent_contracts.evaluation.firewall.suite import read_suite

    try:
        if run is not None and (train or heldout or cutoff):
            raise ValueError("--run RUN takes files and cut-off from the run's experiment")
        day = None if cutoff is None else cutoff.date()
        if run is not None:
            train, heldout = data_files(run)
            day = declared_cutoff(run)
        if train is None or heldout is None:
            raise ValueError("give TRAIN and HELDOUT, or --run RUN")
        found = audit(read_suite(train), read_suite(heldout), day, run)
        for path in (out, None if run is None else run / FILE):
            if path is not None:
                write_audit(path, found)
    except (ContractViolation, ValueError, OSError) as error:
        fail(str(error), code=2)
    _show(found)
    raise typer.Exit(0 if found.passed else 1)


def _show(found: Firewall) -> None:
    title = f"{found.num_train} training and {found.num_heldout} held-out tasks, rules {found.rules.version}"
    table = Table("check", "status", "found", "bound", title=title, box=None, title_justify="left")
    for check in found.checks:
        style = _STYLES[check.status]
        table.add_row(check.name, f"[{style}]{check.status}[/{style}]", check.figure, check.bound)
    console.print(table)
    for check in found.checks:
        _show_evidence(check)
    for name, policy in found.network.items():
        if policy is not None:
            reach = ", ".join(policy.allowed) or "nothing"
            line = f"network of {name}: reaches {reach}; blocked: {policy.blocked}. Cost: {policy.cost_in_realism}"
            console.print(line, markup=False, soft_wrap=True)
    failed = ", ".join(check.name for check in found.checks if check.status == "failed")
    console.print(f"failed: {failed}" if failed else "no check failed", soft_wrap=True)


def _show_evidence(check: Check) -> None:
    for line in check.evidence:
        console.print(f"{check.name}: {line}", markup=False, soft_wrap=True)
    if check.pairs:
        worst = check.pairs[0]
        console.print(f"{check.name}, most alike ({worst.similarity:.3f}):", markup=False)
        for side, text in (("train", worst.train_text), ("held-out", worst.heldout_text)):
            console.print(f"  {side:9}{' / '.join(text.splitlines())}", markup=False, soft_wrap=True)
