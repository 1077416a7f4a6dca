"""A recorded episode as a person reads it: turns, actions, observations, masks, log probabilities, state diffs.

Records hold state hashes. The diffs come from executing the recorded actions again, and a step is shown with one only
when the state that came out has the recorded hash.
"""

from __future__ import annotations

from collections.abc import Iterator

from recipe.agent_contracts.errors import RecordCorrupt
from recipe.agent_contracts.transition.replay import Replayer, recorded_action
from recipe.agent_contracts.transition.state_diff import state_diff
from recipe.agent_contracts.transition.trajectory import TurnRecord
from recipe.agent_contracts.transition.trajectory.context import contexts

_TOKENS_PER_LINE = 10

Line = tuple[str, str]
"""A style of the terminal and a text."""


def transcript(replayer: Replayer, turns: list[TurnRecord]) -> Iterator[Line]:
    """The lines of an episode's transcript.

    Args:
        replayer: Of the run that holds the episode.
        turns: The episode's records, in order.

    Raises:
        RecordCorrupt: when a context does not hang together, or a blob is damaged.
    """
    yield from _head(turns)
    diffs = state_diffs(replayer, turns)
    for record, context in zip(turns, contexts(turns), strict=True):
        yield "bold", f"\nturn {record.turn}"
        yield "dim", f"context: {len(context)} tokens, {len(record.context_new_token_ids)} of them new"
        yield "green", record.action_text
        yield "yellow" if record.invalid_reason else "", f"action: {_action(record)}"
        yield from (("dim", line) for line in _tokens(record))
        yield from _observation(replayer, record)
        yield from (("magenta", line) for line in next(diffs))
    yield from _end(turns[-1])


def _head(turns: list[TurnRecord]) -> Iterator[Line]:
    identity, first = turns[0].episode, turns[0]
    yield "bold", f"{identity.trajectory_id}  {identity.task_id}"
    yield (
        "dim",
        f"{identity.partition} step {identity.trainer_step}, {identity.data_source}, {identity.family}, "
        f"{identity.decoding}, seed {identity.seed}, group {identity.group_id}",
    )
    yield "dim", f"policy version {first.behavior_policy_version}, manifest {first.policy_manifest_hash}"


def _end(last: TurnRecord) -> Iterator[Line]:
    reward = "no reward" if last.reward_components is None else str(last.reward_components)
    yield "bold", f"\n{last.termination_reason or 'the writer was killed before the episode was whole'}: {reward}"
    if last.error is not None:
        yield "red", last.error


def _action(record: TurnRecord) -> str:
    if record.invalid_reason is not None:
        return f"invalid, {record.invalid_reason}"
    name = f" {record.tool_name} {record.tool_args}" if record.action_kind == "tool" else ""
    ignored = record.calls_ignored_in_thinking
    return f"{record.action_kind}{name}" + (f" ({ignored} calls ignored in thinking)" if ignored else "")


def _tokens(record: TurnRecord) -> Iterator[str]:
    """Ids with their masks and log probabilities, aligned."""
    total = sum(record.behavior_logprobs)
    yield f"{len(record.action_token_ids)} tokens, log probability {total:.3f}"
    for start in range(0, len(record.action_token_ids), _TOKENS_PER_LINE):
        part = slice(start, start + _TOKENS_PER_LINE)
        yield "  id    " + " ".join(f"{token:>8}" for token in record.action_token_ids[part])
        yield "  mask  " + " ".join(f"{bit:>8}" for bit in record.action_mask[part])
        yield "  logp  " + " ".join(f"{value:>8.3f}" for value in record.behavior_logprobs[part])


def _observation(replayer: Replayer, record: TurnRecord) -> Iterator[Line]:
    raw, cut = replayer.observation(record), record.observation_cut
    if raw is None:
        yield "dim", "no observation"
        return
    yield "cyan", raw or "(an empty observation)"
    if cut is not None:
        yield "dim", f"the model reads the {cut.keeps} of it: {cut.max_chars} of {cut.num_chars} characters"


def state_diffs(replayer: Replayer, turns: list[TurnRecord]) -> Iterator[list[str]]:
    """What each turn changed, by executing it again."""
    try:
        env = replayer.opened(turns[0].episode)
    except (RecordCorrupt, ValueError) as error:  # a run whose task cannot be opened here can still be read
        yield from ([f"state: not replayed ({error})"] for _ in turns)
        return
    state = env.export_state()
    for record in turns:
        if replayer.observation(record) is None:
            yield ["state: unchanged, the environment did not answer"]
            continue
        transition = env.step(recorded_action(record))
        before, state = state, env.export_state()
        if transition.state_version != record.state_after:
            yield ["state: replay gives another one than was recorded (agent-contracts replay says where)"]
            continue
        yield state_diff(before, state) or ["state: unchanged"]
