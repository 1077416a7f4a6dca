"""Gates of the transition contract: reset, replay, isolation, log probabilities, the sample index, termination."""

from __future__ import annotations

import math

from recipe.agent_contracts import domains
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.evaluation.gates.base import CountingGate, Finding, Gate, Run
from recipe.agent_contracts.transition.conformance import Property, Verdict, cases_of, check_cases
from recipe.agent_contracts.transition.replay import Replayer
from recipe.agent_contracts.transition.trajectory import TurnRecord


class ResetHash(CountingGate):
    """Every recorded task, reset again, has the state hash that all its episodes started from."""

    id, name, unit = "G01", "reset_hash", "resets with another state hash"

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._replayer = Replayer(run.folder)
        self._states: dict[tuple[str, str, int], str] = {}

    def see(self, turns: list[TurnRecord]) -> None:
        identity = turns[0].episode
        key = (identity.task_hash, identity.task_id, identity.seed)
        try:
            if key not in self._states:
                self._states[key] = self._replayer.opened(identity).state_hash()
            found = self._states[key]
        except (ContractViolation, ValueError) as error:
            found = str(error)
        where = f"{identity.trajectory_id}: recorded {turns[0].base_snapshot_id}, reset gives {found}"
        self.count(found == turns[0].base_snapshot_id, where)


class ReplayExact(CountingGate):
    """Every recorded action executed again gives the recorded observation, state hash and reward."""

    id, name, unit = "G02", "replay_exact", "replayed episodes diverged"

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._replayer = Replayer(run.folder)

    def see(self, turns: list[TurnRecord]) -> None:
        name = turns[0].episode.trajectory_id
        try:
            divergence = self._replayer.replay(turns)
        except (ContractViolation, ValueError) as error:
            self.count(False, f"{name}: {error}")
            return
        where = "" if divergence is None else f"{name}, turn {divergence.turn}: {divergence.field}"
        self.count(divergence is None, where)

    def finding(self) -> Finding:
        self._replayer.close()
        return super().finding()


class BranchIsolation(Gate):
    """The environment's forks do not see each other, and its sealed snapshots do not change (conformance suite)."""

    id, name, evidence = "G03", "branch_isolation", "agent-contracts env check"
    tolerance = "both properties hold"
    properties = (Property.FORKS_ARE_ISOLATED, Property.SEALED_SNAPSHOT_IS_IMMUTABLE)

    def finding(self) -> Finding:
        domain = self.run.contract["environment"]["domain"]
        environment = domains.DOMAINS[domain].environment_class
        if environment is None:
            return self._not_measured(f"the environment of {domain} declares no capabilities")
        report = check_cases(cases_of(domains.load(environment)), pause_seconds=0.0)
        found = {finding.property: finding for finding in report.findings if finding.property in self.properties}
        figure = ", ".join(f"{name} {finding.verdict}" for name, finding in found.items())
        failed = [finding.divergence for finding in found.values() if finding.verdict is Verdict.FAILS]
        if failed:
            return self._failed(figure, failed[0])
        if any(finding.verdict is Verdict.NOT_CLAIMED for finding in found.values()):
            return self._not_measured(f"{environment}: {figure}")
        return self._passed(figure)


class LogprobsComplete(CountingGate):
    """Every sampled token has one finite log probability that is not above 0."""

    id, name, unit = "G05", "logprobs_complete", "turns without aligned, finite log probabilities"

    def see(self, turns: list[TurnRecord]) -> None:
        for record in turns:
            lengths = {len(record.action_token_ids), len(record.behavior_logprobs), len(record.action_mask)}
            finite = all(math.isfinite(value) and value <= 0.0 for value in record.behavior_logprobs)
            self.count(len(lengths) == 1 and finite, f"{record.episode.trajectory_id}, turn {record.turn}")


class SampleIndex(CountingGate):
    """Every episode that an update used is in the training records: whole, in its group, with task and checkpoint."""

    id, name, unit = "G14", "sample_index", "trained episodes not found whole in the records"
    evidence = "updates/"

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._missing = dict.fromkeys(run.trained)
        self._seen: set[str] = set()

    def see(self, turns: list[TurnRecord]) -> None:
        identity = turns[0].episode
        name = identity.trajectory_id
        again = name in self._seen
        self._seen.add(name)
        if name not in self.run.trained:
            return
        self._missing.pop(name, None)
        row = self.run.trained[name][1]
        named = bool(identity.task_id and identity.family and identity.env_version)
        placed = identity.partition == "train" and identity.group_id == row.group_id
        whole = [record.turn for record in turns] == list(range(len(turns)))
        tokens = sum(len(record.action_token_ids) for record in turns) == row.num_action_tokens
        sampled = all(record.behavior_policy_version is not None and record.policy_manifest_hash for record in turns)
        self.count(named and placed and whole and tokens and sampled and not again, name)

    def finding(self) -> Finding:
        for name in self._missing:
            self.count(False, f"{name} is in no trajectory part")
        return super().finding()


class TerminationDistinct(CountingGate):
    """Each whole episode ends with one code; one that is censored has no reward, and none such was trained on."""

    id, name, unit = "G15", "termination_distinct", "episodes with a wrong end"

    def see(self, turns: list[TurnRecord]) -> None:
        *before, last = turns
        name = last.episode.trajectory_id
        trained = name in self.run.trained
        rewarded = last.reward_components is not None
        if last.termination_reason is None:  # its writer was killed: no verl process ever got the row
            so = "was trained on" if trained else "a reward"
            self.count(not trained and not rewarded, f"{name} has no termination code and {so}")
            return
        early = any(record.termination_reason is not None for record in before)
        censored_with_reward = rewarded and not last.termination_reason.is_outcome
        self.count(not early and not censored_with_reward and not (trained and not rewarded), name)
