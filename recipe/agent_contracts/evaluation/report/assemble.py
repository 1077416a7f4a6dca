"""Puts a report together: what stands at its top, the verdict, and the sections in their order."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from recipe.agent_contracts.evaluation.report.measured import Measured
from recipe.agent_contracts.evaluation.report.page import Page, Section
from recipe.agent_contracts.evaluation.report.sections.admission import admission_section, policy_section
from recipe.agent_contracts.evaluation.report.sections.causes import why_section
from recipe.agent_contracts.evaluation.report.sections.conduct import conduct_section, safety_section
from recipe.agent_contracts.evaluation.report.sections.gates import evidence_section, gates_section
from recipe.agent_contracts.evaluation.report.sections.heldout import (
    comparison_section,
    heldout_section,
    learning_section,
    retain_section,
)
from recipe.agent_contracts.evaluation.report.sections.optimization import mismatch_section, update_section
from recipe.agent_contracts.evaluation.report.verdict import axes
from recipe.agent_contracts.policy.manifest import diff

IS_WHERE = frozenset({"run.folder", "run.root", "run.experiment"})
"""Where a run lies is not what it is."""


def page_of(runs: list[Measured]) -> Page:
    """The report of one run, or of two side by side."""
    sections: list[Section] = [comparison_section(runs)] if len(runs) == 2 else []
    sections += [
        gates_section(runs),
        learning_section(runs),
        heldout_section(runs),
        retain_section(runs),
        safety_section(runs),
        conduct_section(runs),
        update_section(runs),
        mismatch_section(runs),
        admission_section(runs),
        policy_section(runs),
        why_section(runs),
        evidence_section(runs),
    ]
    names = [f"{run.contract['run']['experiment']}/{run.folder.resolve().name}" for run in runs]
    return Page(
        title=names[0] if len(runs) == 1 else f"A: {names[0]} and B: {names[1]}",
        facts=[(run.label or "Run", _facts(run)) for run in runs],
        warnings=[warning for run in runs for warning in _cut_short(run)]
        + (differences(*runs) if len(runs) == 2 else []),
        axes=axes(runs),
        sections=sections,
    )


def _facts(run: Measured) -> str:
    declared = run.contract
    began = [published.built_at for published in run.publications]
    when = f", began {datetime.fromtimestamp(min(began), UTC):%Y-%m-%d %H:%M} UTC" if began else ""
    return (
        f"{run.folder.resolve().name}: domain {declared['environment']['domain']}, "
        f"{declared['credit']['estimator']} with {declared['credit']['reduction']}, {declared['update']['objective']}, "
        f"groups of {declared['rollout']['group_size']}, {len(run.updates)} updates, "
        f"{run.tally.num_episodes} episodes{when}"
    )


def _cut_short(run: Measured) -> list[str]:
    """What the run did not come to."""
    found = []
    declared = run.run.experiment.get("trainer", {}).get("total_training_steps")
    done = run.updates[-1].step if run.updates else 0
    if isinstance(declared, int) and done < declared:
        found.append(f"{run.prefix}the run is not whole: {done} of {declared} declared optimizer steps are recorded.")
    if not run.metrics:
        found.append(f"{run.prefix}no metrics: the run logged no step, or its metrics.jsonl is empty.")
    if run.not_finite:
        found.append(f"{run.prefix}{len(run.not_finite)} logged values are not finite; the last section names them.")
    return found


def differences(a: Measured, b: Measured) -> list[str]:
    """In words: how the two runs differ in scaffold, data and preregistered experiment."""
    found = []
    if a.manifest is None or b.manifest is None:
        found.append("Whether A and B used the same scaffold is not known: a run has no published manifest.")
    elif a.manifest.scaffold_hash != b.manifest.scaffold_hash:
        changes = "; ".join(str(change) for change in diff(a.manifest.without_weights(), b.manifest.without_weights()))
        found.append(
            f"The scaffold differs, so a difference in results is not the weights' alone. From A to B: {changes}."
        )
    if a.manifest is not None and b.manifest is not None and a.manifest.base_revision != b.manifest.base_revision:
        found.append("A and B started from different weights.")
    before, after = _flat(a.contract), _flat(b.contract)
    changed = [
        f"{name} is {before.get(name)} in A, {after.get(name)} in B"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name) and name not in IS_WHERE
    ]
    if changed:
        found.append(f"The preregistered experiments differ: {'; '.join(changed)}.")
    return found


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        flat |= _flat(value, f"{name}.") if isinstance(value, dict) and value else {name: value}
    return flat
