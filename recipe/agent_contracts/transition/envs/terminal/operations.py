"""One builder for each operation: the files of a task, the exact result, and the ways to get it wrong.

The wrong results (`near_miss`, `guess`, `misdirected`) are what the scripted demonstrations of poor quality write.
They are computed beside the right one because both need the same entries.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from recipe.agent_contracts.transition.envs.terminal.families import Family
from recipe.agent_contracts.transition.envs.terminal.formats import (
    STEMS,
    Entry,
    render,
    render_broken,
    render_schema,
    sample_entries,
    sample_value,
    type_of,
    with_value,
    without,
)

EMPTY = "none"
"""Content of a file that is still to be filled."""


class Blueprint(msgspec.Struct, frozen=True, kw_only=True):
    """One task before its wording."""

    files: dict[str, str]
    target: str
    distractor: str
    source: str = ""
    """The file that the objective names beside the target; empty when there is none."""
    key: str = ""
    value: str = ""
    reads: tuple[str, ...]
    """What a careful agent reads before it writes."""
    expected: str
    near_miss: str
    """Right method, wrong entry."""
    guess: str
    """Written without reading."""
    misdirected_reads: tuple[str, ...]
    misdirected: str
    """Written to the distractor instead of the target."""


def build(family: Family, rng: Random) -> Blueprint:
    """Draw one task of a family."""
    return _BUILDERS[family.operation](family, rng)


def _names(family: Family, rng: Random) -> tuple[str, str, str]:
    """Names of the target, the distractor and the source: different stems, so that they never collide."""
    target, distractor, source = rng.sample(STEMS, 3)
    return f"{target}.{family.target}", f"{distractor}.{family.target}", f"{source}.{family.source}"


def _set(family: Family, rng: Random) -> Blueprint:
    target, distractor, _ = _names(family, rng)
    fmt = family.target
    entries = sample_entries(rng, fmt)
    key, old = rng.choice(entries)
    value = sample_value(rng, other_than=old)
    return _edit(fmt, rng, entries, key, value, files={}, target=target, distractor=distractor, source="")


def _copy(family: Family, rng: Random) -> Blueprint:
    target, distractor, source = _names(family, rng)
    entries = sample_entries(rng, family.target)
    key, old = rng.choice(entries)
    value = sample_value(rng, other_than=old)
    given = with_value(sample_entries(rng, family.source, must_have=key), key, value)
    files = {source: render(family.source, given)}
    return _edit(family.target, rng, entries, key, value, files, target, distractor, source)


def _edit(
    fmt: str,
    rng: Random,
    entries: list[Entry],
    key: str,
    value: str,
    files: dict[str, str],
    target: str,
    distractor: str,
    source: str,
) -> Blueprint:
    """What set and copy share: one entry of the target gets a new value."""
    others = sample_entries(rng, fmt, must_have=key)
    wrong_key = rng.choice(without(entries, key))[0]
    first = (source,) if source else ()
    return Blueprint(
        files={**files, target: render(fmt, entries), distractor: render(fmt, others)},
        target=target,
        distractor=distractor,
        source=source,
        key=key,
        value=value,
        reads=(*first, target),
        expected=render(fmt, with_value(entries, key, value)),
        near_miss=render(fmt, with_value(entries, wrong_key, value)),
        guess=render(fmt, with_value(sample_entries(rng, fmt, must_have=key), key, value)),
        misdirected_reads=(*first, distractor),
        misdirected=render(fmt, with_value(others, key, value)),
    )


def _repair(family: Family, rng: Random) -> Blueprint:
    target, distractor, _ = _names(family, rng)
    fmt = family.target
    entries, others = sample_entries(rng, fmt), sample_entries(rng, fmt)
    decoy = render(fmt, others) if rng.random() < 0.5 else render_broken(fmt, others, rng)
    return Blueprint(
        files={target: render_broken(fmt, entries, rng), distractor: decoy},
        target=target,
        distractor=distractor,
        reads=(target,),
        expected=render(fmt, entries),
        near_miss=render(fmt, entries[:-1]),
        guess=render(fmt, sample_entries(rng, fmt)),
        misdirected_reads=(distractor,),
        misdirected=render(fmt, others),
    )


def _drop(family: Family, rng: Random) -> Blueprint:
    target, distractor, _ = _names(family, rng)
    fmt = family.target
    entries = sample_entries(rng, fmt)
    key = rng.choice(entries)[0]
    others = sample_entries(rng, fmt, must_have=key)
    return Blueprint(
        files={target: render(fmt, entries), distractor: render(fmt, others)},
        target=target,
        distractor=distractor,
        key=key,
        reads=(target,),
        expected=render(fmt, without(entries, key)),
        near_miss=render(fmt, without(entries, rng.choice(without(entries, key))[0])),
        guess=render(fmt, without(sample_entries(rng, fmt), key)),
        misdirected_reads=(distractor,),
        misdirected=render(fmt, without(others, key)),
    )


def _extract(family: Family, rng: Random) -> Blueprint:
    target, distractor, source = _names(family, rng)
    entries = sample_entries(rng, family.source)
    key, value = rng.choice(entries)
    wrong = rng.choice(without(entries, key))[1]
    # A log's value is "code place": the code alone is asked for.
    expected, near_miss = value.split()[0], wrong.split()[0]
    return Blueprint(
        files={source: render(family.source, entries), target: EMPTY, distractor: EMPTY},
        target=target,
        distractor=distractor,
        source=source,
        key=key,
        reads=(source,),
        expected=expected,
        near_miss=near_miss,
        guess=str(rng.randint(10, 99)),
        misdirected_reads=(source,),
        misdirected=expected,
    )


def _schema(family: Family, rng: Random) -> Blueprint:
    """One key is missing or has a value of the wrong type; the schema's default is the right value."""
    target, distractor, source = _names(family, rng)
    fmt = family.target
    defaults = sample_entries(rng, fmt)
    entries = [(key, _of_type(rng, type_of(default), other_than=default)) for key, default in defaults]
    key, default = rng.choice(defaults)
    wanted = with_value(entries, key, default)
    wrong_type = "word" if type_of(default) == "int" else "int"
    invalid = with_value(entries, key, _of_type(rng, wrong_type)) if rng.random() < 0.5 else without(entries, key)
    return Blueprint(
        files={
            source: render_schema(defaults),
            target: render(fmt, invalid),
            distractor: render(fmt, sample_entries(rng, fmt)),
        },
        target=target,
        distractor=distractor,
        source=source,
        reads=(source, target),
        expected=render(fmt, wanted),
        near_miss=render(fmt, defaults),
        guess=render(fmt, sample_entries(rng, fmt)),
        misdirected_reads=(source, distractor),
        misdirected=render(fmt, wanted),
    )


def _of_type(rng: Random, wanted: str, other_than: str | None = None) -> str:
    while True:
        value = sample_value(rng, other_than)
        if type_of(value) == wanted:
            return value


def _cli(family: Family, rng: Random) -> Blueprint:
    target, distractor, source = _names(family, rng)
    entries = sample_entries(rng, family.source)
    expected = render(family.target, entries)
    return Blueprint(
        files={source: render(family.source, entries), target: EMPTY, distractor: EMPTY},
        target=target,
        distractor=distractor,
        source=source,
        reads=(source,),
        expected=expected,
        near_miss=render(family.target, entries[:-1]),
        guess=render(family.target, sample_entries(rng, family.target)),
        misdirected_reads=(source,),
        misdirected=expected,
    )


_BUILDERS: dict[str, Callable[[Family, Random], Blueprint]] = {
    "set": _set,
    "copy": _copy,
    "repair": _repair,
    "drop": _drop,
    "extract": _extract,
    "schema": _schema,
    "cli": _cli,
}
