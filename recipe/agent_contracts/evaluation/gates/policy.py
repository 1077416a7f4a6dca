"""Gates of policy identity: one scaffold everywhere, one version a group, the weights that were sent in use."""

from __future__ import annotations

import functools
import math
from collections import defaultdict

from recipe.agent_contracts.evaluation.gates.base import CountingGate, Finding, Gate, Run
from recipe.agent_contracts.policy.manifest import PolicyManifest, manifest_path, read_manifest
from recipe.agent_contracts.policy.registry import FILE_NAME, Acknowledgement, Part, Publication
from recipe.agent_contracts.policy.scaffold_lock import ATTESTED, LOCK, decoding_key, read_attestations, read_lock
from recipe.agent_contracts.transition.trajectory import TurnRecord

ROLES = frozenset({"launcher", "trainer", "rollout", "evaluator", "reward", "engine"})
"""Who must have computed the scaffold for themselves."""


class ManifestIdentical(CountingGate):
    """Every role attested locked scaffolds, and every turn names a policy, weights included, in one of its decoding."""

    id, name, unit = "G04", "manifest_identical", "turns or roles outside the locked scaffold"
    evidence = "scaffold.json, scaffold_attested.jsonl, manifests/"

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._missing = [name for name in (LOCK, ATTESTED) if not (run.folder / name).exists()]
        if self._missing:
            return
        self._manifest = functools.lru_cache(maxsize=1024)(self._read_manifest)
        lock = run.reading(LOCK, read_lock)
        self._locked = {
            decoding: {scaffold.scaffold_hash for scaffold in found} for decoding, found in lock.decodings.items()
        }
        attested = run.reading(ATTESTED, read_attestations)
        for role in sorted(ROLES):
            self.count(any(entry.role == role for entry in attested), f"nobody attested as {role}")
        for entry in attested:
            known = entry.role == "engine" or all(
                self._locked.get(decoding, set()).issuperset(found) for decoding, found in entry.scaffolds.items()
            )
            self.count(known, f"{entry.role} (process {entry.process_id}) attested another scaffold")

    def see(self, turns: list[TurnRecord]) -> None:
        if self._missing:
            return
        identity = turns[0].episode
        locked = self._locked.get(decoding_key(identity.partition, identity.decoding), set())
        for record in turns:
            if record.action_token_ids:
                policy = None if record.policy_manifest_hash is None else self._manifest(record.policy_manifest_hash)
                good = (
                    policy is not None
                    and policy.scaffold_hash in locked
                    and policy.policy_version == record.behavior_policy_version
                    and policy.weight_checksum == record.behavior_weight_checksum
                )
                self.count(good, f"{identity.trajectory_id}, turn {record.turn}")

    def finding(self) -> Finding:
        return self._not_measured(f"{self._missing[0]} is missing") if self._missing else super().finding()

    def _read_manifest(self, manifest_hash: str) -> PolicyManifest | None:
        """None: there is no such manifest, or another one under its name."""
        try:
            manifest = read_manifest(manifest_path(self.run.folder, manifest_hash))
        except (OSError, ValueError):
            return None
        return manifest if manifest.manifest_hash == manifest_hash else None


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
        # Opening the registry would create it.
        self._is_missing = not (run.folder / FILE_NAME).exists()
        for published in [] if self._is_missing else run.reading(FILE_NAME, lambda folder: run.registry.publications()):
            if published.active_at is None:
                continue
            self._served[published.policy_version] = published.weight_checksum
            acknowledged = run.registry.acknowledgements(published.id)
            in_use = all(entry.num_compared > 0 and entry.not_compared is None for entry in acknowledged)
            where = f"version {published.policy_version} on replica {published.replica}"
            self.count(_is_acknowledged(published, acknowledged) and in_use, where)

    def finding(self) -> Finding:
        return self._not_measured(f"{FILE_NAME} is missing") if self._is_missing else super().finding()

    def see(self, turns: list[TurnRecord]) -> None:
        for record in turns:
            if record.action_token_ids and not self._is_missing:
                version = record.behavior_policy_version
                known = None if version is None else self._served.get(version)
                where = f"{record.episode.trajectory_id}, turn {record.turn}"
                self.count(known is not None and known == record.behavior_weight_checksum, where)


def _is_acknowledged(published: Publication, acknowledged: list[Acknowledgement]) -> bool:
    """Whether every rank received each part, as it was sent. An adapter's own digest is not in the registry (its
    checksum there covers its scaling too): its ranks must agree."""
    sent = {Part.FULL: published.weight_checksum, Part.BASE: published.base_checksum}
    received: dict[Part, dict[int, str]] = defaultdict(dict)
    for entry in acknowledged:
        received[entry.part][entry.rank] = entry.received_checksum
    whole = Part.FULL if published.adapter_checksum is None else Part.ADAPTER
    return whole in received and all(
        found.keys() == set(range(published.num_ranks))
        and len(set(found.values())) == 1
        and (part is Part.ADAPTER or sent[part] in found.values())
        for part, found in received.items()
    )


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
        step, gap = max(measured.items(), key=lambda item: _nan_is_worst(item[1]))
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
        sizes: dict[str, list[float]] = {name: [] for name in self.metrics}
        for update in self.run.updates:
            values = logged.get(update.step, {})
            if not values.keys() >= sizes.keys():
                return self._not_measured(f"step {update.step} logged no {', '.join(self.metrics)}")
            for name, found in sizes.items():
                found.append(abs(values[name]))
        worst = {name: max(found, key=_nan_is_worst) for name, found in sizes.items()}
        figure = ", ".join(f"{_short(name)} {value:.2g}" for name, value in worst.items())
        over = [name for name, value in worst.items() if not value <= self._bounds[name]]
        return self._failed(figure, f"metrics.jsonl: {over[0]}") if over else self._passed(figure)

    def tolerance_text(self) -> str:
        return ", ".join(f"{_short(name)} {bound:g}" for name, bound in self._bounds.items() if bound is not None)


def _nan_is_worst(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _short(name: str) -> str:
    return {"abs_p95": "p95 |delta|", "abs_max": "max |delta|", "k3": "|k3|"}[name.partition("/")[2]]
