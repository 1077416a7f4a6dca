"""`agent-contracts audit`: how often the verifier errs, which episodes a human should look at, and what humans said."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from recipe.agent_contracts.commands.output import RunFolder, console, fail
from recipe.agent_contracts.errors import ContractViolation

if TYPE_CHECKING:
    from recipe.agent_contracts.evaluation.verifier_audit import Errors, Interval, VerifierAudit

TIMEOUT_SECONDS = 10.0
app = typer.Typer(no_args_is_help=True, help="Judge the verifier: its error rates, and what humans say.")


@app.command()
def verifier(
    run: Annotated[Path | None, typer.Argument(help="Take in its human labels", exists=True, file_okay=False)] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for a verifier-<domain>.json")] = None,
) -> None:
    """Error rates of the verifier on labelled states, against bounds set beforehand. Exit code 1: one does not hold.

    Without a run every shipped domain is judged. With a run: its domain, its human labels too, and the result goes into
    its audits/verifier.json, where gate G17 reads it.
    """
    from recipe.agent_contracts.evaluation.verifier_audit import FILE, require_same_verifier, write_audit

    passed = True
    for name in _domains(run):
        try:
            found = _judged(name, run)
            if run is not None:
                require_same_verifier(run, found)
                write_audit(run / FILE, found)
            if out is not None:
                write_audit(out / f"verifier-{name}.json", found)
        except (ContractViolation, ValueError, OSError) as error:
            fail(str(error), code=2)
        _show(found)
        passed = passed and found.passed
    raise typer.Exit(0 if passed else 1)


@app.command()
def label(
    run: RunFolder,
    trajectory: Annotated[str, typer.Argument(help="Trajectory id, as `audit queue` lists it")],
    is_right: Annotated[
        bool, typer.Option("--right/--wrong", help="Whether the final state is what the task asks for")
    ],
    by: Annotated[str, typer.Option(help="Your name")],
    note: Annotated[str, typer.Option(help="Why")] = "",
) -> None:
    """Say of one episode whether its final state is right. Appended to audits/human_labels.jsonl, never replaced."""
    from recipe.agent_contracts.verification.audit_queue import append_label

    try:
        given = append_label(run, trajectory, is_right, by, note)
    except ContractViolation as error:
        fail(str(error), code=2)
    said = "right" if given.is_right else "wrong"
    console.print(f"{trajectory}: {said}, says {given.by}; the verifier gave {given.task_success:g}", markup=False)


@app.command()
def queue(
    run: RunFolder,
    random_share: Annotated[float, typer.Option(min=0.0, max=1.0, help="Of all episodes, whatever they look like")] = (
        0.02
    ),
    seed: Annotated[int, typer.Option(help="Of the random share")] = 0,
) -> None:
    """The episodes to be looked at, riskiest first; the same list whenever it is asked for."""
    from recipe.agent_contracts.verification.audit_queue import audit_queue

    try:
        queued = audit_queue(run, random_share, seed)
    except ContractViolation as error:
        fail(str(error), code=2)
    table = Table("trajectory", "task", "risks", "success", "violations", "damage", "tokens", box=None)
    for found in queued:
        vector = found.reward_components
        terms = [f"{vector[name]:g}" for name in ("task_success", "policy_violation", "collateral_damage")]
        table.add_row(found.trajectory_id, found.task_id, ", ".join(found.risks), *terms, str(found.num_action_tokens))
    console.print(table)
    console.print(f"{len(queued)} episodes queued; agent-contracts trace show RUN TRAJECTORY shows one")


def _domains(run: Path | None) -> list[str]:
    from recipe.agent_contracts.domains import DOMAINS
    from recipe.agent_contracts.evaluation.gates.base import Run

    if run is None:
        return list(DOMAINS)
    try:
        return [Run(run).contract["environment"]["domain"]]
    except (ContractViolation, KeyError) as error:
        fail(str(error), code=2)


def _judged(name: str, run: Path | None) -> VerifierAudit:
    from recipe.agent_contracts.domains import domain_of
    from recipe.agent_contracts.evaluation.verifier_audit import audit_verifier
    from recipe.agent_contracts.verification.human_labelled import HumanLabelled, human_labelled
    from recipe.agent_contracts.verification.process import VerifierPool

    human = HumanLabelled([], []) if run is None else human_labelled(run)
    domain = domain_of(name)
    pool = VerifierPool(domain.verifier, TIMEOUT_SECONDS, num_processes=1)
    try:
        with console.status(f"scoring labelled states of {name}"):
            return audit_verifier(name, domain, pool.verify, human)
    finally:
        pool.close()


def _show(found: VerifierAudit) -> None:
    rates = ("FP", "95%", "FN", "95%")
    sources = list(found.sources)
    who = found.verifier_version or found.verifier
    title = f"{found.domain}: {who}, Wilson 95% intervals; then FP and FN by source of label"
    table = Table("family", *rates, *sources, "no verdict", "bounds", title=title, box=None, title_justify="left")
    for family, errors in found.families.items():
        by_source = [_pair(errors.sources.get(source)) for source in sources]
        verdict = f"[red]{'; '.join(errors.failures)}[/red]" if errors.failures else "[green]hold[/green]"
        table.add_row(family, *_rates(errors), *by_source, str(errors.num_no_verdict), verdict)
    by_source = [_pair(found.sources[source]) for source in sources]
    table.add_row("[bold]all[/bold]", *_rates(found), *by_source, str(found.num_no_verdict), "", style="bold")
    console.print(table)
    for line in _remarks(found):
        console.print(line, markup=False, soft_wrap=True)


def _remarks(found: VerifierAudit) -> list[str]:
    bounds, lines = found.bounds, []
    lines.append(
        f"bounds of each family: FP at most {bounds.max_false_positives} of at least {bounds.min_negatives} negatives, "
        f"FN at most {bounds.max_false_negative_rate:.0%} of at least {bounds.min_positives} positives, "
        f"without a verdict at most {bounds.max_no_verdict}"
    )
    called_right = found.num_positives + found.num_whitespace_rejected
    if called_right:
        lines.append(
            f"cost of strictness: {found.num_whitespace_rejected} refused states differ from the right one in white "
            f"space alone; were they called right, FN would be "
            f"{found.false_negatives + found.num_whitespace_rejected} of {called_right}"
        )
    if found.disputed:
        lines.append(f"people disagree about {len(found.disputed)} episodes, which are in no rate: {found.disputed}")
    if found.first_failure is not None:
        lines.append(f"no verdict, first: {found.first_failure}")
    lines.append("every bound holds" if found.passed else "a bound does not hold")
    return lines


def _rates(errors: Errors) -> tuple[str, str, str, str]:
    return (
        f"{errors.false_positives} of {errors.num_negatives}",
        _percent(errors.false_positive_interval),
        f"{errors.false_negatives} of {errors.num_positives}",
        _percent(errors.false_negative_interval),
    )


def _percent(interval: Interval | None) -> str:
    return "-" if interval is None else f"{100 * interval.low:.2f}-{100 * interval.high:.2f}%"


def _pair(errors: Errors | None) -> str:
    if errors is None:
        return "-"
    return f"{errors.false_positives}/{errors.num_negatives} {errors.false_negatives}/{errors.num_positives}"
