"""What breaks the gates of admission, of the update and of the controls: G10 to G13, G16, G17, G19."""

from __future__ import annotations

import msgspec

from recipe.agent_contracts.evaluation.gates.base import Status
from recipe.agent_contracts.update.record import UpdateRow
from tests import verifiers
from tests.gated import Parts
from tests.unit.evaluation.control_runs import controls
from tests.unit.evaluation.gates.breaking import breaks
from tests.unit.update.leasing import lease

MISSING = Status.NOT_MEASURED


@breaks("G10", "b_0, turn 0: lag 2")
def weights_that_are_too_old_were_trained_on(parts: Parts) -> None:
    parts.change_update(2, input_policy_version=3)


@breaks("G10", "b_0, turn 0: lag -1")
def weights_that_did_not_exist_were_trained_on(parts: Parts) -> None:
    parts.change_update(2, input_policy_version=0)


@breaks("G11", "duplicate: group a in steps [1, 2]")
def a_group_was_used_twice(parts: Parts) -> None:
    rows = [*parts.updates[0].rows, *parts.updates[1].rows]
    parts.change_update(2, rows=_reweighted(rows))
    parts.contract["rollout__max_version_lag"] = 1  # or G10 fails too


@breaks("G11", "incomplete: group a has 4 of 5")
def a_sibling_is_missing(parts: Parts) -> None:
    parts.leases["a"] = lease("a", size=5)


@breaks("G11", "duplicate: a_0 2 times in step 1")
def a_sibling_stands_in_for_another(parts: Parts) -> None:
    rows = parts.updates[0].rows
    parts.change_update(1, rows=[*rows[:3], rows[0]])


@breaks("G11", "lost: group d")
def a_group_came_to_no_end(parts: Parts) -> None:
    parts.leases["d"] = lease("d")


@breaks("G11", "not in the ledger as used: group a")
def the_ledger_does_not_know_of_a_use(parts: Parts) -> None:
    del parts.applied["a"]
    parts.refused["a"] = "deadline"


@breaks("G11", "used in step 1 by the ledger alone: group a")
def the_record_of_a_step_is_lost(parts: Parts) -> None:
    del parts.updates[0]


@breaks("G11", "step 1 has no record")
def a_step_was_skipped(parts: Parts) -> None:
    the_record_of_a_step_is_lost(parts)
    the_ledger_does_not_know_of_a_use(parts)


@breaks("G11", "group a was used in step 1, by the ledger in step 2")
def the_ledger_says_another_step(parts: Parts) -> None:
    parts.applied["a"] = 2


@breaks("G11", "no ledger", status=MISSING)
def the_ledger_is_lost(parts: Parts) -> None:
    parts.lost.append("ledger.sqlite")


@breaks("G12", "audits/sync_async.json")
def the_asynchronous_loss_differs(parts: Parts) -> None:
    parts.audits["sync_async"]["loss_relative_difference"] = 1e-5


@breaks("G12", "audits/sync_async.json")
def the_asynchronous_gradient_differs(parts: Parts) -> None:
    parts.audits["sync_async"]["gradient_relative_difference"] = 1e-5


@breaks("G12", "audits/sync_async.json is missing", status=MISSING)
def the_asynchronous_path_was_not_compared(parts: Parts) -> None:
    del parts.audits["sync_async"]


@breaks("G13", "family hard: 12 of 12 dropped")
def a_family_was_dropped(parts: Parts) -> None:
    parts.drop(12, parts.episodes["b_0"], family="hard")


@breaks("G13", "reward 0: 101 of 105 dropped")
def failures_were_dropped(parts: Parts) -> None:
    parts.drop(100, parts.episodes["b_1"])


@breaks("G13", "length 64-127: 41 of 41 dropped")
def short_episodes_were_dropped(parts: Parts) -> None:
    parts.drop(40, parts.episodes["c_2"])


@breaks("G16", "b_2")
def a_row_has_another_weight(parts: Parts) -> None:
    parts.change_row(2, 2, weight=0.5)


@breaks("G16", "experiment.yaml")
def another_reduction_than_declared(parts: Parts) -> None:
    rows = parts.updates[0].rows
    weight = 1 / sum(row.num_action_tokens for row in rows)
    rows = [msgspec.structs.replace(row, weight=weight) for row in rows]
    parts.change_update(1, reduction="token_mean", rows=rows)


@breaks("G17", "audits/verifier.json")
def the_verifier_overlooks_faults(parts: Parts) -> None:
    parts.audit_verifier(verifiers.AcceptsEverything)


@breaks("G17", "audits/verifier.json")
def the_verifier_refuses_what_is_right(parts: Parts) -> None:
    parts.audit_verifier(verifiers.TooStrict)


@breaks("G17", "audits/verifier.json is missing", status=MISSING)
def the_verifier_was_not_audited(parts: Parts) -> None:
    parts.verifier_audit = None


@breaks("G19", "seed 2")
def a_shuffled_arm_gained(parts: Parts) -> None:
    parts.audits["controls"] = controls(nulls=((-0.03, 0.02), (-0.03, 0.02), (0.01, 0.05)))


@breaks("G19", "interval wider than", status=MISSING)
def the_intervals_are_wide(parts: Parts) -> None:
    parts.audits["controls"] = controls(nulls=((-0.1, 0.03),) * 3)


@breaks("G19", "2 shuffle seeds", status=MISSING)
def a_shuffled_arm_is_missing(parts: Parts) -> None:
    parts.audits["controls"] = controls(nulls=((-0.03, 0.02),) * 2)


@breaks("G19", "2 attempts", status=MISSING)
def the_attempts_are_few(parts: Parts) -> None:
    parts.audits["controls"] = controls(attempts=2)


@breaks("G19", "99 tasks", status=MISSING)
def the_tasks_are_few(parts: Parts) -> None:
    parts.audits["controls"] = controls(num_tasks=99)


@breaks("G19", "itself a control (frozen)", status=MISSING)
def the_run_is_a_control(parts: Parts) -> None:
    parts.contract["evaluation__control"] = "frozen"


@breaks("G19", "audits/controls.json is missing", status=MISSING)
def there_are_no_controls(parts: Parts) -> None:
    del parts.audits["controls"]


def _reweighted(rows: list[UpdateRow]) -> list[UpdateRow]:
    return [msgspec.structs.replace(row, weight=1 / len(rows)) for row in rows]
