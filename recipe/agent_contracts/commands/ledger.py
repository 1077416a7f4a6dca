"""`agent-contracts ledger`: what became of every group of siblings. Exit code 1 when one was lost or used twice."""

from __future__ import annotations

from collections import Counter

import typer
from rich.table import Table

from recipe.agent_contracts.commands.output import RunFolder, console, fail


def ledger(run: RunFolder) -> None:
    """Groups by state, refused ones by reason and stratum, and what must not be there."""
    from recipe.agent_contracts.update.admission import lost_by_stratum
    from recipe.agent_contracts.update.ledger import FILE_NAME, Ledger, State
    from recipe.agent_contracts.update.problems import find_problems

    if not (run / FILE_NAME).exists():
        fail(f"{run} holds no {FILE_NAME}", code=2)
    book = Ledger(run)
    states = Table("state", "groups", box=None)
    for state, count in book.counts().items():
        states.add_row(state, str(count))
    console.print(states)
    reasons = Counter(row.reason for row in book.groups(State.DISCARDED)) + Counter(
        row.reason for row in book.groups(State.QUARANTINED)
    )
    for reason, count in reasons.most_common():
        console.print(f"refused, {reason}: {count}", markup=False)
    strata = Table("stratum", "value", "lost", "groups", box=None)
    for (kind, value), (lost, total) in sorted(lost_by_stratum(book.groups()).items()):
        strata.add_row(kind, value, str(lost), str(total))
    console.print(strata)
    problems = find_problems(run, book)
    for problem in problems:
        console.print(f"[red]problem:[/red] {problem}", soft_wrap=True)
    console.print(f"{len(problems)} problems: duplicate, lost and incomplete groups")
    raise typer.Exit(1 if problems else 0)
