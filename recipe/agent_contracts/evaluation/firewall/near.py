"""Near duplicates: the training task that is most like each held-out task, by shingles and by weighted words.

Two views of a task are compared: what is asked, and that with the initial files. Neither measure reads meaning: the
same request in other words is found by neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from recipe.agent_contracts.evaluation.firewall import minhash
from recipe.agent_contracts.evaluation.firewall.rules import SHOWN, Check, Pair, Rules, Status
from recipe.agent_contracts.evaluation.firewall.suite import SuiteTask
from recipe.agent_contracts.evaluation.firewall.tfidf import cosines

VIEWS: dict[str, Callable[[SuiteTask], str]] = {"text": lambda task: task.text, "content": lambda task: task.content}
MISSED = "false_negative_probability_at_bound"
Tasks = Sequence[SuiteTask]


def near_checks(train: Tasks, heldout: Tasks, rules: Rules) -> Iterator[Check]:
    """Both measures on both views. A check fails when a held-out task reaches the bound with any training task."""
    for view, text_of in VIEWS.items():
        yield _by_shingles(f"minhash_{view}", text_of, train, heldout, rules)
        yield _by_words(f"tfidf_{view}", text_of, train, heldout, rules)


def _by_shingles(name: str, text_of: Callable[[SuiteTask], str], train: Tasks, heldout: Tasks, rules: Rules) -> Check:
    sets = [[minhash.shingles(text_of(task), rules.words_per_shingle) for task in tasks] for tasks in (train, heldout)]
    signed = [minhash.signatures(side, rules) for side in sets]
    found = sorted(minhash.candidates(signed[0], signed[1], rules))
    nearest: dict[int, Pair] = {}
    for i, j in found:
        exact = minhash.jaccard(sets[0][i], sets[1][j])
        if j not in nearest or exact > nearest[j].similarity:
            estimated = float((signed[0][i] == signed[1][j]).mean())
            nearest[j] = _pair(train[i], heldout[j], text_of, exact, estimated)
    figures = {
        "num_candidates": float(len(found)),
        "num_pairs": float(len(train) * len(heldout)),
        MISSED: minhash.miss_probability(rules.max_jaccard, rules),
    }
    return _judged(name, "Jaccard", list(nearest.values()), len(heldout), rules.max_jaccard, figures)


def _by_words(name: str, text_of: Callable[[SuiteTask], str], train: Tasks, heldout: Tasks, rules: Rules) -> Check:
    rows = cosines([text_of(task) for task in train], [text_of(task) for task in heldout])
    pairs = [
        _pair(train[int(row.argmax())], task, text_of, float(row.max()), None)
        for task, row in zip(heldout, rows, strict=True)
    ]
    return _judged(name, "cosine", pairs, len(heldout), rules.max_cosine, {})


def _judged(
    name: str, measure: str, nearest: list[Pair], num_heldout: int, limit: float, figures: dict[str, float]
) -> Check:
    """The check from each held-out task's nearest training task; one without a candidate counts as 0."""
    worst = sorted(nearest, key=lambda pair: -pair.similarity)
    # Rounding: identical texts have a cosine of 1 - 2e-16.
    over = [pair for pair in worst if pair.similarity >= limit - 1e-9]
    values = np.zeros(num_heldout)
    values[: len(worst)] = [pair.similarity for pair in worst]
    spread = {"max": values.max(), "p99": np.quantile(values, 0.99), "median": np.median(values)}
    missed = figures.get(MISSED)
    bound = f"{measure} below {limit:g}" + ("" if missed is None else f" (one at it is missed with p {missed:.1g})")
    told = ", ".join(f"{key} {value:.3f}" for key, value in spread.items())
    return Check(
        name=name,
        status=Status.FAILED if over else Status.PASSED,
        figure=f"{len(over)} of {num_heldout} held-out tasks; nearest {measure}: {told}",
        bound=bound,
        evidence=[f"held-out {pair.heldout} and train {pair.train}: {pair.similarity:.3f}" for pair in over[:SHOWN]],
        figures={**{key: float(value) for key, value in spread.items()}, "num_over": float(len(over)), **figures},
        pairs=worst[:SHOWN],
    )


def _pair(
    train: SuiteTask, heldout: SuiteTask, text_of: Callable[[SuiteTask], str], value: float, estimated: float | None
) -> Pair:
    return Pair(
        train=train.task_id,
        heldout=heldout.task_id,
        similarity=value,
        estimated=estimated,
        train_text=text_of(train),
        heldout_text=text_of(heldout),
    )
