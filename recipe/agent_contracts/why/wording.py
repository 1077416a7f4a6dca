"""A cause and its consequence in words, as lines for the terminal."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from recipe.agent_contracts.evaluation.logged import HELD_OUT
from recipe.agent_contracts.transcript import Line, state_diffs
from recipe.agent_contracts.transition.replay import Replayer
from recipe.agent_contracts.transition.trajectory import TurnRecord
from recipe.agent_contracts.update.record import UpdateRecord, UpdateRow
from recipe.agent_contracts.verification.layers import Verdict
from recipe.agent_contracts.why.cause import Consequence, EpisodeCause, TokenCause

_MAX_TEXT_CHARS = 400


def step_lines(update: UpdateRecord) -> Iterator[Line]:
    """The update and every row of it, groups together."""
    yield from _update_lines(update)
    moved = sum(any(row.advantages) for row in update.rows)
    yield "", f"{len(update.rows)} episodes, of which {moved} have a coefficient other than 0"
    for group, rows in itertools.groupby(update.rows, key=lambda row: row.group_id):
        yield "bold", f"\ngroup {group}"
        yield from (("", f"  {_row(row)}") for row in rows)


def episode_lines(update: UpdateRecord, cause: EpisodeCause, run: Path) -> Iterator[Line]:
    """One episode: its coefficient, its group, its verdict, who sampled it, and each turn with what it changed."""
    yield from _update_lines(update)
    yield from _group_lines(cause)
    yield from _origin_lines(cause)
    replayer = Replayer(run)
    index = 0
    for record, diff in zip(cause.turns, state_diffs(replayer, cause.turns), strict=True):
        last = index + len(record.action_token_ids) - 1
        yield "bold", f"\nturn {record.turn}: action tokens {index} to {last}"
        yield from _turn_lines(record, diff)
        index = last + 1


def token_lines(update: UpdateRecord, cause: EpisodeCause, token: TokenCause, run: Path) -> Iterator[Line]:
    """One token: its coefficient first, then all that stands behind it."""
    yield (
        "bold",
        (
            f"token {token.token_id} at position {token.position} of turn {token.turn}, sampled with log probability "
            f"{token.behavior_logprob:.4f}"
        ),
    )
    yield _direction(token.coefficient)
    yield from _update_lines(update)
    yield from _group_lines(cause)
    yield from _origin_lines(cause)
    diff = next(itertools.islice(state_diffs(Replayer(run), cause.turns), token.turn, None))
    yield "bold", f"\nturn {token.turn}"
    yield from _turn_lines(cause.turns[token.turn], diff)


def consequence_lines(update: UpdateRecord, consequence: Consequence) -> Iterator[Line]:
    """What came of the update."""
    yield "bold", f"\nit made policy version {update.output_policy_version}"
    if not consequence.publications:
        yield "yellow", "which was never served: the run ended before it sampled again"
    for served in consequence.publications:
        until = "still" if served.retired_at is None else f"until {_time(served.retired_at)}"
        since = "never" if served.active_at is None else f"{_time(served.active_at)} {until}"
        yield "", f"replica {served.replica}: {served.state}, served {since}, weights {served.weight_checksum}"
    before, after = consequence.heldout_before, consequence.heldout_after
    if after is None:
        yield "yellow", "no held-out evaluation came after it"
        return
    steps = after.step - (before.step if before else 0)
    yield "", f"held-out evaluation at version {after.step}" + (f", before at {before.step}" if before else "")
    if steps > 1:
        yield "dim", f"{steps} updates lie between: the difference is owed to all of them"
    earlier = before.values if before else {}
    for name in sorted(name for name in after.values if name.startswith(HELD_OUT)):
        was = f"{earlier[name]:.3f} -> " if name in earlier else ""
        yield "", f"  {name.removeprefix(HELD_OUT)}: {was}{after.values[name]:.3f}"


def _update_lines(update: UpdateRecord) -> Iterator[Line]:
    yield (
        "",
        f"step {update.step}: version {update.input_policy_version} -> {update.output_policy_version}; "
        f"{update.objective}, {update.estimator}, reduction {update.reduction}, "
        f"group scale {update.group_reward_scale}, KL coefficient {update.kl_beta}",
    )
    if update.control != "none":
        yield (
            "bold yellow",
            f"control {update.control}, seed {update.shuffle_seed}: returns were permuted within each group, so a "
            "coefficient says nothing about what its own episode achieved",
        )


def _group_lines(cause: EpisodeCause) -> Iterator[Line]:
    yield "bold", f"\ngroup {cause.row.group_id}: {len(cause.siblings)} siblings"
    for row in cause.siblings:
        mark = ">" if row.trajectory_id == cause.row.trajectory_id else " "
        yield "", f"{mark} {_row(row)}, {_ending(cause.episodes.get(row.trajectory_id))}"
    trained = {row.trajectory_id for row in cause.siblings}
    for name in cause.episodes.keys() - trained:
        yield "yellow", f"  {name}: not in this update, {_ending(cause.episodes[name])}"
    yield from _admission_lines(cause)


def _admission_lines(cause: EpisodeCause) -> Iterator[Line]:
    group = cause.group
    if group is None:
        return
    lease = group.lease
    yield (
        "",
        (
            f"leased at step {group.leased_step} for version {lease.policy_version}, {lease.size} siblings, from state "
            f"{lease.base_snapshot_id}; now {group.state}" + (f" ({group.reason})" if group.reason else "")
        ),
    )
    yield (
        "dim",
        f"lease {lease.lease_hash}, manifest {lease.behavior_manifest_hash}, sampler {lease.sampler_config_hash}",
    )


def _origin_lines(cause: EpisodeCause) -> Iterator[Line]:
    last, identity = cause.turns[-1], cause.turns[0].episode
    yield "bold", f"\nepisode {identity.trajectory_id}"
    yield "", f"task {identity.task_id} ({identity.data_source}, {identity.family}), seed {identity.seed}"
    yield "", f"verifier: {_vector(last.reward_components)}"
    yield from _verdict_lines(cause.verdict)
    yield "dim", f"final state {last.final_state_hash}, grader {identity.grader_hash}"
    if cause.manifest is not None:
        yield "", f"sampled by version {cause.manifest.policy_version}, weights {cause.manifest.weight_checksum}"
        yield "dim", f"manifest {cause.manifest.manifest_hash}, scaffold {cause.manifest.scaffold_hash}"


def _verdict_lines(verdict: Verdict | None) -> Iterator[Line]:
    if verdict is None:
        return
    for layer in verdict.layers:
        outcome = {True: "passed", False: "did not pass", None: "no opinion"}[layer.passed]
        yield "", f"  {layer.kind} {layer.layer}: {outcome}" + (f" ({layer.detail})" if layer.detail else "")
    held = ", ".join(verdict.guarantees) or "nothing"
    yield "dim", f"{verdict.verifier_version} in a box of {verdict.backend}, which guarantees {held}"


def _turn_lines(record: TurnRecord, diff: Iterable[str]) -> Iterator[Line]:
    yield "green", _shortened(record.action_text)
    kind = record.action_kind if record.invalid_reason is None else f"invalid, {record.invalid_reason}"
    yield "dim", f"{kind}; log probability {sum(record.behavior_logprobs):.3f}"
    yield from (("magenta", line) for line in diff)


def _direction(coefficient: float) -> Line:
    if coefficient == 0:
        return "yellow", "coefficient 0: its own term of the loss does not move it"
    color, way = ("green", "up") if coefficient > 0 else ("red", "down")
    return color, f"coefficient {coefficient:+.6g}: its own term of the loss pushes its log probability {way}"


def _row(row: UpdateRow) -> str:
    low, high = min(row.advantages), max(row.advantages)
    advantage = f"{low:+.4f}" if low == high else f"{low:+.4f} to {high:+.4f}"
    origin = "" if row.return_of is None else f" (verified for {row.return_of})"
    return (
        f"{row.trajectory_id}: return {row.episode_return:.4g}{origin}, advantage {advantage} x weight "
        f"{row.weight:.4g} on {row.num_action_tokens} tokens"
    )


def _ending(turns: list[TurnRecord] | None) -> str:
    if not turns:
        return "no records"
    return f"{turns[-1].termination_reason or 'not whole'}, {len(turns)} turns"


def _vector(reward: dict[str, float] | None) -> str:
    return "no verdict" if reward is None else ", ".join(f"{name} {value:g}" for name, value in reward.items())


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_TEXT_CHARS else f"{text[:_MAX_TEXT_CHARS]} ... ({len(text)} characters)"
