"""What must not be in a finished run: a group that was used twice, lost, incomplete, or trained without the ledger."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from recipe.agent_contracts.update.ledger import TERMINAL, Ledger, State
from recipe.agent_contracts.update.record import read_updates


def find_problems(run: Path, ledger: Ledger) -> list[str]:
    """One line a problem, from the ledger and the records of the updates. Empty: each group was consumed exactly once.

    APPLIED is where a group stands that was used after the last checkpoint: no problem, as long as the run is there.
    """
    used_in: dict[str, list[int]] = defaultdict(list)
    incomplete, repeated = [], []
    for update in read_updates(run):
        rows = Counter((row.group_id, row.trajectory_id) for row in update.rows)
        repeated += [
            f"duplicate: {name} {count} times in step {update.step}" for (_, name), count in rows.items() if count > 1
        ]
        for group_id, count in Counter(group_id for group_id, _ in rows).items():
            used_in[group_id].append(update.step)
            group = ledger.group(group_id)
            if group is not None and count != group.lease.size:
                incomplete.append(
                    f"incomplete: group {group_id} has {count} of {group.lease.size} siblings in step {update.step}"
                )
    duplicate = [f"duplicate: group {group} in steps {steps}" for group, steps in used_in.items() if len(steps) > 1]
    trained = {
        row.group_id: row.applied_step for row in ledger.groups() if row.state in (State.APPLIED, State.COMMITTED)
    }
    unknown = [
        f"not in the ledger as used: group {group} of steps {used_in[group]}" for group in used_in.keys() - trained
    ]
    unused = [f"used in step {trained[group]} by the ledger alone: group {group}" for group in trained.keys() - used_in]
    moved = [
        f"group {group} was used in step {steps[-1]}, by the ledger in step {trained[group]}"
        for group, steps in used_in.items()
        if group in trained and trained[group] not in steps
    ]
    still_open = (row for row in ledger.groups() if row.state not in TERMINAL | {State.APPLIED})
    lost = [f"lost: group {row.group_id} is {row.state} since step {row.leased_step}" for row in still_open]
    return sorted(duplicate) + repeated + sorted(incomplete) + sorted(unknown) + sorted(unused) + moved + lost
