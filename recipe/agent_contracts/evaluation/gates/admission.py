"""Gates of admission: staleness, exactly-once consumption, the asynchronous path, and who was dropped."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from pathlib import Path

import msgspec
from scipy import stats

from recipe.agent_contracts.evaluation.gates.base import CountingGate, Finding, Gate, Run
from recipe.agent_contracts.transition.trajectory import TurnRecord
from recipe.agent_contracts.update.gradient_mass import length_band
from recipe.agent_contracts.update.ledger import FILE_NAME, Ledger, State
from recipe.agent_contracts.update.problems import find_problems


class StalenessBound(CountingGate):
    """No trained turn was sampled by weights further back than the declared lag, in policy versions."""

    id, name, unit = "G10", "staleness_bound", "trained turns beyond max_version_lag"

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._max_lag: int = run.contract["rollout"]["max_version_lag"]

    def see(self, turns: list[TurnRecord]) -> None:
        used = self.run.trained.get(turns[0].episode.trajectory_id)
        if used is None:
            return
        for record in turns:
            version = record.behavior_policy_version
            lag = None if version is None else used[0].input_policy_version - version
            where = f"{record.episode.trajectory_id}, turn {record.turn}: lag {lag}"
            self.count(lag is not None and 0 <= lag <= self._max_lag, where)


class ExactlyOnce(Gate):
    """Each group was consumed once or not at all: updates, ledger and commits say the same, and no step is missing."""

    id, name, evidence = "G11", "exactly_once", "ledger.sqlite, updates/"
    tolerance = "0 duplicate, 0 lost, 0 incomplete"

    def finding(self) -> Finding:
        if not self.run.updates or not (self.run.folder / FILE_NAME).exists():
            return self._not_measured("the run has no ledger, or made no update")
        problems, counts = self.run.reading(FILE_NAME, _account)
        steps = [update.step for update in self.run.updates]
        problems += [f"step {step} has no record" for step in range(1, steps[-1] + 1) if step not in set(steps)]
        figure = f"{len(problems)} problems; " + ", ".join(
            f"{count} {state}" for state, count in counts.items() if count
        )
        return self._failed(figure, problems[0]) if problems else self._passed(figure)


def _account(run: Path) -> tuple[list[str], dict[State, int]]:
    with contextlib.closing(Ledger(run)) as ledger:
        return find_problems(run, ledger), ledger.counts()


class Differences(msgspec.Struct, frozen=True):
    """What the gate reads of audits/sync_async.json."""

    loss_relative_difference: float
    gradient_relative_difference: float


class SyncAsyncEquivalence(Gate):
    """At max_version_lag 0 the asynchronous path gives the loss and the gradient of the synchronous one."""

    id, name, tolerance, evidence = "G12", "sync_async_equivalence", "1e-6 relative", "audits/sync_async.json"

    def finding(self) -> Finding:
        audit = self.run.audit("sync_async", Differences)
        if audit is None:
            return self._not_measured(f"{self.evidence} is missing")
        worst = max(audit.loss_relative_difference, audit.gradient_relative_difference)
        figure = f"largest relative difference {worst:.2g}"
        return self._passed(figure) if worst <= 1e-6 else self._failed(figure, self.evidence)


class DropStrata(Gate):
    """Dropped training episodes are not told apart by family, length or reward from those that were used.

    Fisher's exact test of each stratum against the rest, Bonferroni over all strata: a curriculum that drops long or
    hard tasks is seen even while the total share is small.
    """

    id, name, tolerance = "G13", "drop_strata", "no stratum with p < 0.01 after Bonferroni"

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])

    def see(self, turns: list[TurnRecord]) -> None:
        identity, last = turns[0].episode, turns[-1]
        if identity.partition != "train":
            return
        dropped = int(identity.trajectory_id not in self.run.trained)
        reward = last.reward_components
        strata = {
            "family": identity.family,
            "length": length_band(sum(len(record.action_token_ids) for record in turns)),
            "reward": "none" if reward is None else f"{reward['task_success']:g}",
        }
        for stratum in strata.items():
            self._counts[stratum][dropped] += 1

    def finding(self) -> Finding:
        by_family = [counts for (kind, _), counts in self._counts.items() if kind == "family"]
        total = [sum(counts[index] for counts in by_family) for index in (0, 1)]
        if not sum(total) or not self.run.updates:
            return self._not_measured("the run holds no trained episode")
        # No reward is a reason to be dropped, not a stratum of what could have been used.
        tested = [key for key in self._counts if key != ("reward", "none")]
        p_values = {}
        for key in tested:
            used, dropped = self._counts[key]
            table = [[used, dropped], [total[0] - used, total[1] - dropped]]
            p_values[key] = min(1.0, float(stats.fisher_exact(table).pvalue) * len(tested))
        dropped_all = f"{total[1]} of {sum(total)} episodes dropped"
        figure = f"{dropped_all} over {len(tested)} strata; smallest p {min(p_values.values()):.2g}"
        told_apart = [key for key, p_value in p_values.items() if p_value < 0.01]
        if not told_apart:
            return self._passed(figure)
        # Where one stratum lost more, the others lost less and may be as significant.
        worst = max(told_apart, key=lambda key: self._counts[key][1] / sum(self._counts[key]))
        used, dropped = self._counts[worst]
        return self._failed(figure, f"{worst[0]} {worst[1]}: {dropped} of {used + dropped} dropped")
