"""The audit of two data files, and of the run that trained on them.

Says for every check whether it passed, failed or does not apply, with its figure, its bound and the first
counterexamples. A run's audit goes to `audits/firewall.json` and names the scaffold lock that it is published with.
It shows that these files are apart by these measures; it cannot show what a pretrained model has read before.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterator
from pathlib import Path

import msgspec

from recipe.agent_contracts.canonical import sha256_json
from recipe.agent_contracts.domains import NetworkPolicy, domain_of, load
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.evaluation.firewall.near import near_checks
from recipe.agent_contracts.evaluation.firewall.overlap import content_checks, label_checks, temporal_check
from recipe.agent_contracts.evaluation.firewall.rules import RULES, Check, Rules, Status, none_allowed, not_applicable
from recipe.agent_contracts.evaluation.firewall.suite import Suite, public_hash
from recipe.agent_contracts.evaluation.gates.base import Run
from recipe.agent_contracts.policy.scaffold_lock import read_lock
from recipe.agent_contracts.transition.snapshots import BlobStore, write_atomically
from recipe.agent_contracts.transition.trajectory import EpisodeIdentity, episodes

FILE = Path("audits") / "firewall.json"
_TRAIN = "train"


class Firewall(msgspec.Struct, frozen=True, kw_only=True):
    """`audits/firewall.json`."""

    passed: bool
    """No check failed; those that do not apply are listed with their reasons."""
    rules: Rules
    rules_hash: str
    temporal_cutoff: str | None
    train_file: str
    train_file_hash: str
    num_train: int
    heldout_file: str
    heldout_file_hash: str
    num_heldout: int
    scaffold_lock_hash: str | None
    """Null: two files were audited, not a run."""
    network: dict[str, NetworkPolicy | None]
    """By domain. Null: the domain declares none."""
    checks: list[Check]


def declared_cutoff(run: Path) -> datetime.date | None:
    """What a run's experiment declares. A run of an earlier version, without the key, declares none."""
    declared = (Run(run).contract.get("evaluation") or {}).get("temporal_cutoff")
    return None if declared is None else datetime.date.fromisoformat(str(declared))


def data_files(run: Path) -> tuple[Path, Path]:
    """The training and the held-out file that a run's experiment names.

    Raises:
        ContractViolation: ``evaluation.run`` when the folder has no experiment or it names no files.
    """
    data = Run(run).experiment.get("data") or {}
    if not (data.get("train_files") and data.get("val_files")):
        raise ContractViolation("evaluation.run", "data.train_files and data.val_files", "none", str(run))
    return Path(data["train_files"]), Path(data["val_files"])


def audit(train: Suite, heldout: Suite, cutoff: datetime.date | None = None, run: Path | None = None) -> Firewall:
    """Make every check.

    Args:
        train: What is trained on.
        heldout: What is evaluated on.
        cutoff: First day of the held-out period. None: none is declared.
        run: Also look at what this run's training episodes held.

    Raises:
        ContractViolation: when the run's records are damaged.
        FileNotFoundError: when the run has no scaffold lock.
        ValueError: for an unknown domain, or a date that is none.
    """
    domains = {name: domain_of(name) for name in sorted({task.domain for task in (*train.tasks, *heldout.tasks)})}
    network = {name: domain.network for name, domain in domains.items()}
    canaries = {
        name: str(load(domain.heldout_canary)) for name, domain in domains.items() if domain.heldout_canary is not None
    }
    checks = [
        *content_checks(train.tasks, heldout.tasks),
        *label_checks(train.tasks, heldout.tasks),
        *near_checks(train.tasks, heldout.tasks, RULES),
        temporal_check(train.tasks, heldout.tasks, cutoff),
        *_canary_checks(train, heldout, canaries),
        *_episode_checks(run, heldout, canaries),
        _network_check(network),
    ]
    return Firewall(
        passed=all(check.status is not Status.FAILED for check in checks),
        rules=RULES,
        rules_hash=sha256_json(RULES),
        temporal_cutoff=None if cutoff is None else cutoff.isoformat(),
        train_file=train.path,
        train_file_hash=train.file_hash,
        num_train=len(train.tasks),
        heldout_file=heldout.path,
        heldout_file_hash=heldout.file_hash,
        num_heldout=len(heldout.tasks),
        scaffold_lock_hash=None if run is None else read_lock(run).lock_hash,
        network=network,
        checks=checks,
    )


def write_audit(path: Path, found: Firewall) -> None:
    """Write an audit as JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, msgspec.json.format(msgspec.json.encode(found)))


def _canary_checks(train: Suite, heldout: Suite, canaries: dict[str, str]) -> Iterator[Check]:
    """The held-out file declares its canary, and neither rows nor metadata of the training file hold one."""
    declared, absent = "heldout_canary", "canary_in_train"
    if not canaries:
        for name in (declared, absent):
            yield not_applicable(name, "no domain of these files declares a canary", "declared and found nowhere else")
        return
    missing = [] if heldout.canary in canaries.values() else [f"{heldout.path}: metadata declare {heldout.canary}"]
    bound = f"{' or '.join(canaries.values())} in the held-out file's metadata"
    yield none_allowed(declared, "not declared" if missing else "declared", bound, missing)
    holding = [
        f"train {task.task_id}" for task in train.tasks if any(canary in task.raw for canary in canaries.values())
    ]
    if train.canary is not None:
        holding.append(f"{train.path}: metadata declare {train.canary}")
    yield none_allowed(absent, f"{len(holding)} places of the training file", "0 places", holding)


def _episode_checks(run: Path | None, heldout: Suite, canaries: dict[str, str]) -> Iterator[Check]:
    """No training episode of a run played a held-out task or held a canary in what its context was made of."""
    played_name, holding_name, bound = "heldout_in_episodes", "canary_in_episodes", "0 training episodes"
    if run is None:
        yield not_applicable(played_name, "two files were audited, not a run", bound)
        yield not_applicable(holding_name, "two files were audited, not a run", bound)
        return
    publics, ids = {task.public_hash for task in heldout.tasks}, {task.task_id for task in heldout.tasks}
    count, played, holding = 0, list[str](), list[str]()
    for identity, task, text in _trained(run):
        count += 1
        if identity.task_id in ids or public_hash(msgspec.json.decode(task)) in publics:
            played.append(f"{identity.trajectory_id} played {identity.task_id}")
        if any(canary in text for canary in canaries.values()):
            holding.append(identity.trajectory_id)
    if count == 0:
        yield not_applicable(played_name, "the run has no training episode", bound)
        yield not_applicable(holding_name, "the run has no training episode", bound)
        return
    yield none_allowed(played_name, f"{len(played)} of {count} training episodes", bound, played)
    if canaries:
        yield none_allowed(holding_name, f"{len(holding)} of {count} training episodes", bound, holding)
    else:
        yield not_applicable(holding_name, "no domain of these files declares a canary", bound)


def _trained(run: Path) -> Iterator[tuple[EpisodeIdentity, str, str]]:
    """Training episodes: who they are, their task, and all text that their contexts were made of."""
    blob = functools.lru_cache(maxsize=1024)(BlobStore(run / "blobs").get)
    for turns in episodes(run):
        identity = turns[0].episode
        if identity.partition == _TRAIN:
            task = blob(identity.task_hash).decode()
            told = [
                turn.observation if turn.observation_ref is None else blob(turn.observation_ref).decode()
                for turn in turns
            ]
            yield identity, task, "\n".join([task, *(turn.action_text for turn in turns), *filter(None, told)])


def _network_check(network: dict[str, NetworkPolicy | None]) -> Check:
    """Every domain says what its environment may reach, and what that costs in realism."""
    silent = [f"{name} declares no network policy" for name, policy in network.items() if policy is None]
    return none_allowed("network_policy", f"{len(silent)} of {len(network)} domains silent", "0 silent", silent)
