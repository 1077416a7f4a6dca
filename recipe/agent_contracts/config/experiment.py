"""The preregistered experiment: the `contract:` node of the configuration, as types.

Owns which keys exist, their ranges, and which values this version implements. A `Literal` is the list of implemented
values: anything else is refused by name, never ignored, so that an experiment.yaml describes only what ran.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from recipe.agent_contracts.config.keys import Config, refuse, shown
from recipe.agent_contracts.config.schema import read_sections
from recipe.agent_contracts.domains import DOMAINS
from recipe.agent_contracts.transition.parsers import PARSERS
from recipe.agent_contracts.verification.boxes.guarantee import Guarantee
from recipe.agent_contracts.verification.judge import JudgeConfig
from recipe.agent_contracts.verification.objective import JUDGE_REJECTED, Objective

Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
NotYet: TypeAlias = None
"""A key of the article that this version does not implement: only null is accepted."""
EVALUATED_ONLY = ("frozen", "sft_only")
"""Controls that evaluate their initial policy and make no update."""


@dataclass(frozen=True, kw_only=True)
class Run:
    experiment: Annotated[str, Meta(min_length=1)]
    root: Annotated[str, Meta(min_length=1)]
    folder: str | None
    """None until the launcher has named the run."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    trainable: Literal["full", "lora"]
    require_manifest: Literal[True]
    lock_scaffold_across_checkpoints: Literal[True]
    parser: str
    """Version of the action parser, a key of `transition.parsers.PARSERS`."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    domain: Annotated[str, Meta(min_length=1)]
    train_tasks: Count | None
    """Distinct tasks in data.train_files. None: not preregistered."""
    heldout_tasks: Count | None
    """Distinct tasks in data.val_files. None: not preregistered."""
    step_budget: Count
    """Model turns of one episode, invalid ones included (the article's max_turns)."""
    token_budget: Count
    """Policy and observation tokens after the prompt."""
    tool_timeout_seconds: Seconds
    max_observation_chars: Count | None
    """What the model reads of one observation. None: all of it. Records keep the raw one."""
    observation_keeps: Literal["start", "end"]
    """Which side of a longer observation the model reads."""
    reset_each_episode: Literal[True]
    snapshot_backend: Literal["canonical_state", "workspace", "record_replay"]
    """What the environment's snapshots hold. record_replay: the experiment accepts partial replay."""
    base_snapshot_per_task: Literal[True]
    branching: Literal[False]
    """Whether turns fork."""


@dataclass(frozen=True, kw_only=True)
class Verification:
    timeout_seconds: Seconds
    processes: Count
    require_guarantees: list[Guarantee]
    """What a machine must guarantee of the verifier's box, else the run does not start."""
    judge: JudgeConfig | None
    """None: no judge is asked."""
    objective: Objective


@dataclass(frozen=True, kw_only=True)
class Records:
    compression: Literal["none", "zstd"]
    """zstd: each episode is one frame of its part file."""


@dataclass(frozen=True, kw_only=True)
class Rollout:
    mode: Literal["synchronous"]
    group_size: Annotated[int, Meta(ge=2)]
    """Siblings of one task. One alone would be its own baseline."""
    temperature: Annotated[float, Meta(gt=0)]
    top_p: Annotated[float, Meta(gt=0, le=1)]
    top_k: Count | None
    """None: no truncation."""
    pin_policy_for_full_episode: Literal[True]
    max_version_lag: Literal[0]
    """In policy versions. 0: every token is sampled by the policy that is updated."""
    require_one_behavior_version_per_group: Literal[True]
    in_flight_policy: Literal["finish_old"]
    partial_episode_policy: Literal["abort_and_restart"]
    require_termination_reason: Literal[True]
    context_compaction: Literal[False]
    max_failed_groups_per_step: Annotated[int, Meta(ge=0)]
    """Groups that a step may lose and replace with fresh ones before the run stops."""


@dataclass(frozen=True, kw_only=True)
class Admission:
    group_deadline_seconds: Seconds
    """From the lease of a group until all its siblings are there; a later one is discarded and replaced."""
    max_age_seconds: Seconds | None
    """From an episode's end until its group enters a batch. None: any."""
    max_censored_share: Annotated[float, Meta(ge=0, le=1)]
    """Of the leased groups of a run that may be lost to censored episodes before it stops."""
    zero_variance: Literal["keep", "resample"]
    """Groups whose returns agree: trained on with advantage 0, or discarded and replaced."""


@dataclass(frozen=True, kw_only=True)
class Consistency:
    """Bounds on ``delta = trainer's - generator's log probability`` of the sampled tokens of a batch, in nats, at the
    weights that sampled. Null: no bound is preregistered, and gate G09 cannot pass. The run stops past a bound."""

    audit_frozen_checkpoint: Literal[False]
    tolerance_source: NotYet
    max_abs_p95: Annotated[float, Meta(gt=0)] | None
    """Of the 95th percentile of ``|delta|``."""
    max_abs_max: Annotated[float, Meta(gt=0)] | None
    max_k3: Annotated[float, Meta(gt=0)] | None
    """Of the k3 estimate of KL(generator || trainer)."""


@dataclass(frozen=True, kw_only=True)
class WeightSync:
    transport: Literal["in_process"]
    publish: Literal["between_steps"]
    """between_steps: while no episode is running. The article's atomic publication is not in this version."""
    require_all_worker_checksums: Literal[True]
    """Every inference rank acknowledges the digest that the trainer sent before its version is served."""
    kv_cache_on_update: Literal["invalidate"]


@dataclass(frozen=True, kw_only=True)
class Credit:
    estimator: Literal["rloo", "grpo", "dr_grpo", "gigpo"]
    reduction: Literal["episode_sum", "length_normalized", "token_mean", "turn_mass_conserving"]
    group_reward_scale: Literal["none", "std"]


@dataclass(frozen=True, kw_only=True)
class Update:
    objective: Literal[
        "reinforce_with_kl",
        "ppo_clip",
        "dapo",
        "gspo",
        "turn_normalized",
        "dppo",
        "truncated_importance",
        "decoupled",
    ]
    behavior_policy: Literal["rollout_manifest"]
    proximal_policy: Literal["behavior_policy", "step_start"]
    """What anchors the ratio. step_start: the trainer's weights when the step began, apart from who sampled."""
    clip_low: Annotated[float, Meta(gt=0, le=1)]
    clip_high: Annotated[float, Meta(gt=0)]
    off_policy_weight: Literal["token", "sequence", None]
    """Granularity of pi_proximal / pi_behaviour. None: the two are one policy."""
    off_policy_threshold: Annotated[float, Meta(gt=0)]
    """Weights above it are cut to it."""
    reference_policy: Literal["initial_sft"]
    kl_beta: Annotated[float, Meta(ge=0)]
    optimizer_steps_per_fresh_batch: Count
    tasks_per_batch: Count


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    control: Literal["none", "shuffled_rewards", "frozen", "sft_only"]
    """What this run is compared as. shuffled_rewards: the null update, with the verified returns permuted within each
    group before credit. frozen and sft_only evaluate their initial policy and update nothing."""
    shuffle_seed: int | None
    """Of shuffled_rewards, and only there."""
    attempts_per_task: Count
    seeds: NotYet
    retain_suites: NotYet
    temporal_cutoff: datetime.date | None
    """Training rows are dated before it (`extra_info.date`), held-out rows on or after it. None: none is declared."""
    template_disjoint: bool
    environment_family_disjoint: bool
    repository_overlap_audit: NotYet
    dedup_rule_version: NotYet
    gates_not_applicable: dict[str, str]
    """Go/no-go gates that this experiment does without, each with its reason: `{G12: no asynchronous run}`."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Everything that is declared before the first rollout."""

    run: Run
    policy: Policy
    environment: Environment
    verification: Verification
    records: Records
    rollout: Rollout
    admission: Admission
    consistency: Consistency
    weight_sync: WeightSync
    credit: Credit
    update: Update
    evaluation: Evaluation


def read_experiment(contract: Config) -> tuple[Experiment | None, list[str]]:
    """The experiment, or None with every problem found."""
    sections, problems = read_sections(Experiment, contract, "contract")
    environment = sections.get("environment")
    if environment is not None and environment.domain not in DOMAINS:
        key = shown("contract.environment.domain", environment.domain)
        problems.append(f"{key}: no such task domain; known: {', '.join(sorted(DOMAINS))}.")
    verification = sections.get("verification")
    if verification is not None and verification.objective.is_gated_by_judge and verification.judge is None:
        problems.append(f"contract.verification.objective.gates names {JUDGE_REJECTED}, but no judge is configured.")
    policy = sections.get("policy")
    if policy is not None and policy.parser not in PARSERS:
        key = shown("contract.policy.parser", policy.parser)
        problems.append(f"{key}: no such action parser; known: {', '.join(PARSERS)}.")
    return (None, problems) if problems else (Experiment(**sections), [])


def load_experiment(contract: Config) -> Experiment:
    """Read the `contract:` node.

    Raises:
        ConfigContradiction: listing each unknown or missing key, wrong type, value out of range, and value that
            this version does not implement.
    """
    experiment, problems = read_experiment(contract)
    refuse(problems)
    assert experiment is not None
    return experiment
