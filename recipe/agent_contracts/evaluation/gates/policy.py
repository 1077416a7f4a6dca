"""Gates of policy identity: one scaffold everywhere, one version a group, the weights that were sent in use."""

from __future__ import annotations

import math
from collections import defaultdict

from recipe.agent_contracts.evaluation.gates.base import CountingGate, Finding, Gate, Run
from recipe.agent_contracts.policy.manifest import manifest_path, read_manifest
from recipe.agent_contracts.policy.scaffold_lock import read_attestations, read_lock
from recipe.agent_contracts.transition.trajectory import TurnRecord

ROLES = frozenset({"launcher", "trainer", "rollout", "evaluator", "reward", "engine"})
"""Who must have computed the scaffold for themselves."""


class ManifestIdentical(CountingGate):
    """Every role attested the locked scaffold, and every turn was sampled in a locked one."""

    id, name, unit = "G04", "manifest_identical", "turns or roles outside the locked scaffold"
    evidence = "scaffold.json, scaffold_attested.jsonl, manifests/"

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._scaffolds: dict[str, str] = {}
        lock = read_lock(run.folder)
        self._locked = {scaffold.scaffold_hash for found in lock.decodings.values() for scaffold in found}
        attested = read_attestations(run.folder)
        for role in sorted(ROLES):
            self.count(any(entry.role == role for entry in attested), f"nobody attested as {role}")
        for entry in attested:
            known = entry.role == "engine" or all(self._locked.issuperset(found) for found in entry.scaffolds.values())
            self.count(known, f"{entry.role} (process {entry.process_id}) attested another scaffold")

    def see(self, turns: list[TurnRecord]) -> None:
        for record in turns:
            if record.policy_manifest_hash is not None:
                where = f"{record.episode.trajectory_id}, turn {record.turn}"
                self.count(self._scaffold(record.policy_manifest_hash) in self._locked, where)

    def _scaffold(self, manifest_hash: str) -> str:
        if manifest_hash not in self._scaffolds:
            try:
                manifest = read_manifest(manifest_path(self.run.folder, manifest_hash))
            except (OSError, ValueError) as error:
                return str(error)
            named = manifest.manifest_hash == manifest_hash
            self._scaffolds[manifest_hash] = manifest.scaffold_hash if named else "a manifest under another's name"
        return self._scaffolds[manifest_hash]


class SingleBehaviorVersion(CountingGate):
    """Each group that an update used was sampled by one version in one scaffold, start to end."""

    id, name, unit = "G07", "single_behavior_version", "trained groups of more than one policy"

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._policies: dict[str, set[tuple[int | None, str | None]]] = defaultdict(set)

    def see(self, turns: list[TurnRecord]) -> None:
        if turns[0].episode.trajectory_id not in self.run.trained:
            return
        for record in turns:
            for version in (record.behavior_policy_version, record.behavior_policy_version_end):
                self._policies[record.episode.group_id].add((version, record.policy_manifest_hash))

    def finding(self) -> Finding:
        for group, policies in self._policies.items():
            self.count(len(policies) == 1, f"group {group}: {sorted(map(str, policies))}")
        return super().finding()


class GeneratorChecksums(CountingGate):
    """Every inference rank acknowledged the weights it served, found them in use, and every turn names them."""

    id, name, unit = "G08", "generator_checksums", "publications or turns with other weights than the registry's"
    evidence = "policies.sqlite"

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._served: dict[int, str | None] = {}
        for published in run.registry.publications():
            if published.active_at is None:
                continue
            self._served[published.policy_version] = published.weight_checksum
            acknowledged = run.registry.acknowledgements(published.id)
            ranks = {entry.rank for entry in acknowledged}
            in_use = all(entry.num_compared > 0 and entry.not_compared is None for entry in acknowledged)
            where = f"version {published.policy_version} on replica {published.replica}"
            self.count(ranks == set(range(published.num_ranks)) and in_use, where)

    def see(self, turns: list[TurnRecord]) -> None:
        for record in turns:
            if record.behavior_policy_version is not None:
                known = self._served.get(record.behavior_policy_version)
                where = f"{record.episode.trajectory_id}, turn {record.turn}"
                self.count(known is not None and known == record.behavior_weight_checksum, where)


class PolicyRoles(Gate):
    """Behaviour, proximal and reference policy are each declared, and fit what the objective needs."""

    id, name, evidence = "G06", "policy_roles", "experiment.yaml, metrics.jsonl: actor/proximal_gap_max"
    tolerance = "roles declared; largest gap of current to proximal log probability 1e-4 at the first optimizer step"
    max_gap = 1e-4

    def finding(self) -> Finding:
        declared = self.run.contract["update"]
        roles = {role: declared.get(f"{role}_policy") for role in ("behavior", "proximal", "reference")}
        missing = [role for role, policy in roles.items() if not policy]
        if missing:
            return self._failed(f"no policy declared for {', '.join(missing)}", "experiment.yaml")
        gaps = {entry.step: entry.values.get("actor/proximal_gap_max") for entry in self.run.metrics}
        measured = {step: gap for step, gap in gaps.items() if gap is not None}
        trained = {update.step for update in self.run.updates}
        if not trained or not trained <= measured.keys():
            return self._not_measured("actor/proximal_gap_max is not logged for every step")
        step, gap = max(measured.items(), key=lambda item: math.inf if math.isnan(item[1]) else item[1])
        figure = ", ".join(f"{role} = {policy}" for role, policy in roles.items()) + f"; gap {gap:.2g}"
        return self._passed(figure) if gap <= self.max_gap else self._failed(figure, f"step {step}")


class LogprobConsistency(Gate):
    """Generator and trainer give the tokens of every trained batch the same log probability, at frozen weights."""

    id, name = "G09", "logprob_consistency"
    evidence = "metrics.jsonl: consistency/*"
    metrics = ("consistency/abs_p95", "consistency/abs_max", "consistency/k3")

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        declared = run.contract["consistency"]
        self._bounds = {name: declared[f"max_{name.partition('/')[2]}"] for name in self.metrics}

    def finding(self) -> Finding:
        if None in self._bounds.values():
            return self._not_measured("contract.consistency preregisters no tolerance")
        if not self.run.updates:
            return self._not_measured("the run made no update")
        logged = {entry.step: entry.values for entry in self.run.metrics}
        worst = dict.fromkeys(self.metrics, 0.0)
        for update in self.run.updates:
            values = logged.get(update.step, {})
            if not values.keys() >= worst.keys():
                return self._not_measured(f"step {update.step} logged no {', '.join(self.metrics)}")
            worst = {name: max(before, abs(values[name])) for name, before in worst.items()}
        figure = ", ".join(f"{_short(name)} {value:.2g}" for name, value in worst.items())
        over = [name for name, value in worst.items() if not value <= self._bounds[name]]
        return self._failed(figure, f"metrics.jsonl: {over[0]}") if over else self._passed(figure)

    def tolerance_text(self) -> str:
        return ", ".join(f"{_short(name)} {bound:g}" for name, bound in self._bounds.items() if bound is not None)


def _short(name: str) -> str:
    return {"abs_p95": "p95 |delta|", "abs_max": "max |delta|", "k3": "|k3|"}[name.partition("/")[2]]
