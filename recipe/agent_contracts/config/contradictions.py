"""What two keys may not say together: one small function for each subject, each yielding one line a contradiction.

A rule is here when verl 0.9.1 would run the combination and train something other than the experiment declares.
"""

from __future__ import annotations

from collections.abc import Iterator

from recipe.agent_contracts.config.experiment import EVALUATED_ONLY, Experiment
from recipe.agent_contracts.config.keys import ACTOR, MODEL, REF, ROLLOUT, Config, clash, lookup, shown
from recipe.agent_contracts.config.snapshot_needs import unmet_needs
from recipe.agent_contracts.config.update_rules import UPDATE_RULES, Rule
from recipe.agent_contracts.domains import capabilities_of
from recipe.agent_contracts.transition.parsers import PARSERS
from recipe.agent_contracts.update.credit import PER_TURN

OPTIM = f"{ACTOR}.optim"
FP32 = (32, "32", "fp32", "float32")

COUNTS = (
    "data.train_batch_size",
    "data.max_prompt_length",
    "data.max_response_length",
    f"{ACTOR}.ppo_mini_batch_size",
    "trainer.nnodes",
    "trainer.n_gpus_per_node",
)
"""verl's keys that the rules calculate with."""


def contradictions(config: Config, experiment: Experiment) -> list[str]:
    """Every contradiction in a configuration whose `contract:` node is in order."""
    malformed = [key for key in COUNTS if type(lookup(config, key)) is not int or lookup(config, key) < 1]
    if malformed:
        return [f"{shown(key, lookup(config, key))}: expected an integer >= 1." for key in malformed]
    return [line for rule in RULES for line in rule(config, experiment)]


def _snapshots(config: Config, experiment: Experiment) -> Iterator[str]:
    """What the experiment needs of snapshots and the environment does not promise."""
    section, domain = "contract.environment", "contract.environment.domain"
    environment = experiment.environment
    unmet = unmet_needs(
        capabilities_of(environment.domain),
        snapshot_backend=environment.snapshot_backend,
        base_snapshot_per_task=environment.base_snapshot_per_task,
        branching=environment.branching,
    )
    for key, declared, fix in unmet:
        yield clash(config, f"{section}.{key}", domain, f"its environment declares {declared}", fix)


def _behavior_log_probs(config: Config, experiment: Experiment) -> Iterator[str]:
    recorded, mode = f"{ROLLOUT}.calculate_log_probs", f"{ROLLOUT}.logprobs_mode"
    if not lookup(config, recorded):
        why = "the behaviour policy's log probabilities would not be recorded"
        yield clash(config, recorded, "contract.update.behavior_policy", why, f"Set {recorded}=true")
    fix = f"Set {mode}=processed_logprobs"
    if lookup(config, mode) not in ("processed_logprobs", "raw_logprobs"):
        why = "the engine would not return log probabilities"
        yield clash(config, mode, "contract.update.behavior_policy", why, fix)
    elif lookup(config, mode) == "raw_logprobs":
        why = "they would be of the untouched logits, not of the distribution that sampled"
        for key in _reshaped_sampling(config, ROLLOUT):
            yield clash(config, mode, key, why, fix)


def _reshaped_sampling(config: Config, sampler: str) -> list[str]:
    """Keys below `sampler` that make the sampling distribution differ from the model's."""
    neutral = {"temperature": 1, "top_p": 1, "top_k": -1, "repetition_penalty": 1}
    found = {name: lookup(config, f"{sampler}.{name}", value) for name, value in neutral.items()}
    # vLLM reads 0 and -1 as "no top-k".
    return [
        f"{sampler}.{name}" for name, value in found.items() if value != neutral[name] and (name, value) != ("top_k", 0)
    ]


def _evaluation_sampling(config: Config, experiment: Experiment) -> Iterator[str]:
    sampler, declared = f"{ROLLOUT}.val_kwargs", "contract.evaluation.attempts_per_task"
    why = "pass@k and pass^k are over attempts of the policy itself, at temperature 1 without truncation"
    for key in _reshaped_sampling(config, sampler):
        yield clash(config, key, declared, why, f"Remove the override of {key}; rows say when to decode greedily")
    if not lookup(config, f"{sampler}.do_sample"):
        yield clash(config, f"{sampler}.do_sample", declared, why, f"Set {sampler}.do_sample=true")


def _controls(config: Config, experiment: Experiment) -> Iterator[str]:
    """A control is the null that it is called."""
    control, seed, evaluation = "contract.evaluation.control", "contract.evaluation.shuffle_seed", experiment.evaluation
    if (evaluation.control == "shuffled_rewards") != (evaluation.shuffle_seed is not None):
        why = "rewards are shuffled with a seed, and only in that control"
        yield clash(config, seed, control, why, f"Set {control}=shuffled_rewards and {seed}=1, or {seed}=null")
    estimator = "contract.credit.estimator"
    if evaluation.control == "shuffled_rewards" and experiment.credit.estimator in PER_TURN:
        why = "returns discounted by an episode's own length have no mean of 0 over permutations: it is not a null"
        yield clash(config, estimator, control, why, f"Set {estimator}=rloo")
    before = "trainer.val_before_train"
    if evaluation.control in EVALUATED_ONLY and not lookup(config, before):
        why = "verl would train instead of evaluating"
        yield clash(config, before, control, why, f"Set {before}=true")


def _learning_rate(config: Config, experiment: Experiment) -> Iterator[str]:
    kind, steps = f"{OPTIM}.lr_scheduler_type", f"{OPTIM}.lr_warmup_steps"
    if lookup(config, f"{OPTIM}.warmup_style") is not None:
        kind = f"{OPTIM}.warmup_style"
    if (lookup(config, steps) or 0) <= 0:
        steps = f"{OPTIM}.lr_warmup_steps_ratio"
    if not (lookup(config, steps) or 0) > 0:
        return
    fix = (
        f"Set {OPTIM}.lr_scheduler_type=cosine {OPTIM}.min_lr_ratio=1.0 {OPTIM}.zero_indexed_step=false, or no warm-up"
    )
    why = "the learning rate of the first step would be 0, and its groups would be consumed without an update"
    if lookup(config, kind) == "constant":
        yield clash(config, kind, steps, why, fix)
    elif lookup(config, f"{OPTIM}.zero_indexed_step", True):
        yield clash(config, f"{OPTIM}.zero_indexed_step", steps, why, fix)


def _precision(config: Config, experiment: Experiment) -> Iterator[str]:
    if lookup(config, "trainer.device") != "cpu":
        return
    why = "a CPU multiplies matrices in bfloat16 some 60 times slower, and the generator computes in float32"
    for role in (ACTOR, REF):
        key = f"{role}.fsdp_config.mixed_precision.param_dtype"
        if lookup(config, key) not in FP32:
            # dtype=float32 alone does not do it: verl's autocast follows mixed_precision, bf16 when absent.
            yield clash(config, key, "trainer.device", why, f"Set {key}=fp32 (with + if the key is new)")


def _lengths(config: Config, experiment: Experiment) -> Iterator[str]:
    response, prompt = "data.max_response_length", "data.max_prompt_length"
    budget, context = "contract.environment.token_budget", f"{ROLLOUT}.max_model_len"
    if experiment.environment.token_budget > lookup(config, response):
        why = "the harness would cut episodes before the budget that the task declares"
        yield clash(config, budget, response, why, f"Leave {response} to follow {budget}")
    for key, ours in ((f"{ROLLOUT}.response_length", response), (f"{ROLLOUT}.prompt_length", prompt)):
        if lookup(config, key) != lookup(config, ours):
            yield clash(config, key, ours, "one length has two values", f"Set {ours} only: {key} follows it")
    needed = lookup(config, prompt) + lookup(config, response)
    if lookup(config, context) is not None and lookup(config, context) < needed:
        why = f"a whole episode needs {prompt} + {response} = {needed} tokens of context"
        yield clash(config, context, response, why, f"Set {context}={needed} or more")


def _steps(config: Config, experiment: Experiment) -> Iterator[str]:
    cap, budget = f"{ROLLOUT}.multi_turn.max_assistant_turns", "contract.environment.step_budget"
    if lookup(config, cap) is not None and lookup(config, cap) < experiment.environment.step_budget:
        why = "episodes would be cut, and censored, before the budget that the task declares"
        yield clash(config, cap, budget, why, f"Remove {cap}, or lower {budget}")


def _parser(config: Config, experiment: Experiment) -> Iterator[str]:
    verl_format, declared = f"{ROLLOUT}.multi_turn.format", "contract.policy.parser"
    if lookup(config, verl_format) not in (None, "hermes", PARSERS[experiment.policy.parser].format):
        why = "only verl's own agent loops read that key; ours parses with the declared parser"
        yield clash(config, verl_format, declared, why, f"Set {declared} and leave {verl_format} out")


def _data_parallel(config: Config, experiment: Experiment) -> Iterator[str]:
    gpus = lookup(config, "trainer.nnodes") * lookup(config, "trainer.n_gpus_per_node")
    sequence_parallel = max(
        lookup(config, f"{ACTOR}.ulysses_sequence_parallel_size", 1),
        lookup(config, f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size", 1),
    )
    ranks = max(1, gpus // sequence_parallel)
    rows = experiment.update.tasks_per_batch * experiment.rollout.group_size
    if rows % ranks:
        why = (
            f"tasks_per_batch x group_size = {rows} episodes do not divide among {ranks} data-parallel ranks, and "
            "verl would fill the batch with synthetic rows"
        )
        fix = f"Choose contract.update.tasks_per_batch so that the product is a multiple of {ranks}"
        yield clash(config, "contract.update.tasks_per_batch", "trainer.n_gpus_per_node", why, fix)


def _trainable(config: Config, experiment: Experiment) -> Iterator[str]:
    declared, rank, adapter = "contract.policy.trainable", f"{MODEL}.lora_rank", f"{MODEL}.lora_adapter_path"
    # Megatron's rank has a key of its own, and verl reads it first.
    if (lookup(config, f"{MODEL}.lora.rank") or 0) > 0:
        rank = f"{MODEL}.lora.rank"
    has_adapter = (lookup(config, rank) or 0) > 0
    if experiment.policy.trainable == "lora" and not has_adapter:
        yield clash(config, declared, rank, "there is no adapter to train", f"Set {rank}=32, or {declared}=full")
    if experiment.policy.trainable == "full":
        for key, given in ((rank, has_adapter), (adapter, lookup(config, adapter) is not None)):
            if given:
                yield clash(config, declared, key, "only the adapter would be trained", f"Set {declared}=lora")


RULES: tuple[Rule, ...] = (
    _snapshots,
    *UPDATE_RULES,
    _behavior_log_probs,
    _evaluation_sampling,
    _controls,
    _learning_rate,
    _precision,
    _lengths,
    _steps,
    _parser,
    _data_parallel,
    _trainable,
)
