"""Which groups were trained on, how old they were, and who was dropped; and which policy sampled them."""

from __future__ import annotations

from collections import Counter

from recipe.agent_contracts.evaluation.report.measured import Measured
from recipe.agent_contracts.evaluation.report.page import (
    Block,
    Fold,
    Missing,
    Paragraph,
    Section,
    Table,
    beside,
    of,
    quantiles,
    rate,
)
from recipe.agent_contracts.evaluation.statistics import wilson
from recipe.agent_contracts.policy.manifest import PolicyManifest

MANIFEST_FIELDS = (
    "policy_version",
    "weight_checksum",
    "base_revision",
    "adapter_revision",
    "scaffold_hash",
    "tokenizer_revision",
    "system_prompt_hash",
    "chat_template_hash",
    "tool_schema_hash",
    "oracle_tools",
    "parser_version",
    "memory_policy",
    "step_budget",
    "token_budget",
    "max_context_tokens",
    "engine_build",
    "engine_dtype",
    "quantization",
    "logprobs_mode",
)

_NUM_SHOWN = 15
"""Strata that are shown without being asked for."""


def admission_section(runs: list[Measured]) -> Section:
    """Lags, drops by stratum, failed and quarantined groups."""
    blocks = beside([_lags(run) for run in runs])
    blocks += beside([_quarantine(run) for run in runs])
    for run in runs:
        if run.groups is None:
            what = f"{run.prefix}groups by state and drops by stratum: the run has no ledger.sqlite"
            blocks.append(Missing(what, "agent-contracts train keeps one"))
            continue
        blocks += _group_blocks(run)
    return Section("admission", "Groups: lags, drops and refusals", blocks)


def _quarantine(run: Measured) -> Block:
    """Episodes whose measurement cannot be trusted."""
    if not run.quarantined:
        return Paragraph(f"{run.prefix}Episodes in quarantine: none.")
    reasons = Counter(str(held.entry.reason) for held in run.quarantined)
    released = Counter(str(held.entry.reason) for held in run.quarantined if held.release is not None)
    rows = [[reason.replace("_", " "), str(count), str(released[reason])] for reason, count in reasons.most_common()]
    caption = f"{run.prefix}episodes in quarantine"
    return Table(caption=caption, columns=["why", "episodes", "of which released"], rows=rows)


def _lags(run: Measured) -> Table:
    """Versions and seconds between sampling and update, over trained episodes."""
    versions: Counter[int] = Counter()
    seconds = []
    applied = run.groups.applied_at if run.groups is not None else {}
    for update in run.updates:
        for row in update.rows:
            version = run.tally.first_version.get(row.trajectory_id)
            if version is not None:
                versions[update.input_policy_version - version] += 1
            at, finished = applied.get(row.group_id), run.tally.finished_at.get(row.trajectory_id)
            if at is not None and finished is not None:
                seconds.append(at - finished)
    declared = run.contract["rollout"]["max_version_lag"]
    told = ", ".join(f"{count} at lag {lag}" for lag, count in sorted(versions.items()))
    rows = [
        ["version lag, trained episodes", told or "not measured", f"at most {declared} versions"],
        ["seconds from an episode's end to its update, p50 / p95", quantiles(seconds, " s"), _age(run)],
    ]
    caption = f"{run.prefix}how old the experience was when it was used"
    return Table(
        caption=caption,
        columns=["lag", "measured", "declared"],
        rows=rows,
        words=("measured", "declared"),
        has_long_names=True,
    )


def _age(run: Measured) -> str:
    bound = run.contract["admission"]["max_age_seconds"]
    return "no bound" if bound is None else f"at most {bound:g} s"


def _group_blocks(run: Measured) -> list[Block]:
    assert run.groups is not None
    groups = run.groups
    states = [[state.replace("_", " "), str(count)] for state, count in groups.counts.items() if count]
    blocks: list[Block] = [
        Table(caption=f"{run.prefix}groups of siblings by state", columns=["state", "groups"], rows=states)
    ]
    if groups.reasons:
        rows = [[reason.replace("_", " "), str(count)] for reason, count in groups.reasons.most_common()]
        caption = f"{run.prefix}discarded, quarantined and rolled back groups"
        blocks.append(Table(caption=caption, columns=["why", "groups"], rows=rows))
    else:
        blocks.append(Paragraph(f"{run.prefix}Discarded, quarantined and rolled back groups: none."))
    rows = [
        [f"{kind} {value}", of(lost, total), rate(wilson(lost, total))]
        for (kind, value), (lost, total) in sorted(groups.strata.items())
    ]
    if rows:
        columns = ["stratum", "groups dropped", "share, 95% Wilson interval"]
        table = Table(caption=f"{run.prefix}dropped groups by stratum", columns=columns, rows=rows)
        blocks.append(Fold(f"{run.prefix}{len(rows)} strata of groups", [table], is_open=len(rows) <= _NUM_SHOWN))
    return blocks


def policy_section(runs: list[Measured]) -> Section:
    """The manifest of the last version that each run served, and what was published."""
    blocks: list[Block] = []
    manifests = [run.manifest for run in runs]
    if any(manifests):
        names = [run.label or "last served version" for run in runs]
        rows = [
            [field.replace("_", " "), *(_value(manifest, field) for manifest in manifests)] for field in MANIFEST_FIELDS
        ]
        rows.append(["sampler", *(_sampler(manifest) for manifest in manifests)])
        caption = "policy manifest of the last version that was served"
        blocks.append(Table(caption=caption, columns=["field", *names], rows=rows, words=tuple(names)))
    for run in runs:
        if run.manifest is None:
            what = f"{run.prefix}the policy's manifest: no served version is in policies.sqlite"
            blocks.append(Missing(what, "agent-contracts train publishes every version"))
        elif run.publications:
            states = Counter(published.state for published in run.publications)
            told = ", ".join(f"{count} {state}" for state, count in states.items())
            blocks.append(Paragraph(f"{run.prefix}{len(run.publications)} publications: {told}."))
    return Section("policy", "The policy", blocks)


def _value(manifest: PolicyManifest | None, field: str) -> str:
    value = None if manifest is None else getattr(manifest, field)
    return "none" if value is None else str(value)


def _sampler(manifest: PolicyManifest | None) -> str:
    if manifest is None:
        return "none"
    sampler = manifest.sampler
    top_k = "none" if sampler.top_k is None else sampler.top_k
    return f"temperature {sampler.temperature:g}, top_p {sampler.top_p:g}, top_k {top_k}"
