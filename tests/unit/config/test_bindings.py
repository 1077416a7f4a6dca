"""Each contradiction between two keys is refused, with both keys, both values and a fix."""

from __future__ import annotations

import pytest

from recipe.agent_contracts.config import bindings
from recipe.agent_contracts.config.components import COMPONENTS
from recipe.agent_contracts.config.contradictions import COUNTS
from recipe.agent_contracts.config.keys import lookup
from recipe.agent_contracts.errors import ConfigContradiction

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"
MODEL = "actor_rollout_ref.model"

CONTRADICTIONS = [
    ({f"{ROLLOUT}.multi_turn.format": "qwen3_coder"}, "contract.policy.parser"),
    ({f"{ACTOR}.ppo_epochs": 2}, "contract.update.optimizer_steps_per_fresh_batch"),
    ({f"{ACTOR}.ppo_mini_batch_size": 8}, "data.train_batch_size"),
    ({f"{ACTOR}.ppo_mini_batch_size": 32}, "data.train_batch_size"),
    ({f"{ACTOR}.entropy_coeff": 0.01}, "contract.update.objective"),
    ({"algorithm.use_kl_in_reward": True}, f"{ACTOR}.use_kl_loss"),
    ({f"{ACTOR}.use_kl_loss": False}, "contract.update.kl_beta"),
    ({"algorithm.rollout_correction.bypass_mode": True}, "contract.update.objective"),
    ({"algorithm.rollout_correction.rollout_rs": "token_k1"}, "contract.update.objective"),
    ({"contract.update.optimizer_steps_per_fresh_batch": 2, f"{ACTOR}.ppo_epochs": 2}, "contract.update.objective"),
    ({f"{ACTOR}.kl_loss_type": "low_var_kl"}, "contract.update.kl_beta"),
    ({f"{ACTOR}.kl_loss_type": "k3"}, "contract.update.kl_beta"),
    ({f"{ROLLOUT}.calculate_log_probs": False}, "contract.update.behavior_policy"),
    ({f"{ROLLOUT}.logprobs_mode": "raw_logits"}, "contract.update.behavior_policy"),
    ({f"{ROLLOUT}.val_kwargs.temperature": 0}, "contract.evaluation.attempts_per_task"),
    ({f"{ROLLOUT}.val_kwargs.top_k": 20}, "contract.evaluation.attempts_per_task"),
    ({f"{ROLLOUT}.val_kwargs.do_sample": False}, "contract.evaluation.attempts_per_task"),
    ({"contract.evaluation.shuffle_seed": 1}, "contract.evaluation.control"),
    ({"contract.evaluation.control": "shuffled_rewards"}, "contract.evaluation.shuffle_seed"),
    (
        {
            "contract.credit.estimator": "gigpo",
            "algorithm.adv_estimator": "contract_gigpo",
            "contract.evaluation.control": "shuffled_rewards",
            "contract.evaluation.shuffle_seed": 1,
        },
        "contract.evaluation.control",
    ),
    (
        {
            "trainer.val_before_train": False,
            "trainer.val_only": True,
            "contract.evaluation.control": "frozen",
        },
        "contract.evaluation.control",
    ),
    ({f"{ACTOR}.optim.lr_scheduler_type": "constant"}, f"{ACTOR}.optim.lr_warmup_steps"),
    ({f"{ACTOR}.optim.zero_indexed_step": True}, f"{ACTOR}.optim.lr_warmup_steps"),
    ({f"{ACTOR}.fsdp_config.mixed_precision.param_dtype": "bf16"}, "trainer.device"),
    ({"actor_rollout_ref.ref.fsdp_config.mixed_precision": None}, "trainer.device"),
    ({"contract.environment.token_budget": 400}, "data.max_response_length"),
    ({f"{ROLLOUT}.response_length": 100}, "data.max_response_length"),
    ({f"{ROLLOUT}.prompt_length": 100}, "data.max_prompt_length"),
    ({f"{ROLLOUT}.max_model_len": 479}, "data.max_response_length"),
    ({f"{ROLLOUT}.multi_turn.max_assistant_turns": 7}, "contract.environment.step_budget"),
    ({"trainer.n_gpus_per_node": 3}, "contract.update.tasks_per_batch"),
    ({"contract.policy.trainable": "lora"}, f"{MODEL}.lora_rank"),
    ({f"{MODEL}.lora_rank": 32}, "contract.policy.trainable"),
    ({f"{MODEL}.lora_adapter_path": "adapter"}, "contract.policy.trainable"),
]


def refusal(config) -> str:
    with pytest.raises(ConfigContradiction) as caught:
        bindings.check(config)
    return str(caught.value)


def test_the_shipped_configuration_passes(composed):
    assert bindings.check(composed).update.objective == "reinforce_with_kl"


@pytest.mark.parametrize(("change", "other"), CONTRADICTIONS, ids=lambda value: str(value))
def test_a_contradiction_names_both_keys_and_values(changed, change, other):
    config = changed(change)
    (message,) = refusal(config).splitlines()[1:]
    first = next(iter(change))
    assert first in message
    assert f"{other}=" in message
    assert "Set " in message or "Leave " in message or "Remove " in message or "Choose " in message


@pytest.mark.parametrize("binding", bindings.BINDINGS, ids=lambda binding: binding.verl_key)
def test_every_binding_is_enforced(composed, changed, binding):
    assert lookup(composed, binding.verl_key) == binding.to_verl(lookup(composed, binding.contract_key))
    message = refusal(changed({binding.verl_key: "something else"}))
    assert binding.verl_key in message


def test_true_is_not_one(changed):
    assert "norm_adv_by_std_in_grpo" in refusal(changed({"algorithm.norm_adv_by_std_in_grpo": 0}))


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda component: component.key)
def test_a_replaced_component_is_refused_with_what_is_lost(changed, component):
    message = refusal(changed({component.key: "another.module.Class"}))
    assert f"{component.key}=another.module.Class" in message
    assert component.keeps in message


def test_an_engine_that_cannot_acknowledge_its_weights_is_refused(changed):
    message = refusal(changed({f"{ROLLOUT}.name": "sglang"}))
    assert "contract.weight_sync.require_all_worker_checksums" in message
    assert "vllm" in message


@pytest.mark.parametrize("library", ["verl_ext.losses", "verl_ext.rollouts"])
def test_what_registers_with_verl_must_be_loaded(changed, library):
    assert f"Add {library} to the list" in refusal(changed({f"{MODEL}.external_lib": ["verl_ext.engine_cpu"]}))


@pytest.mark.parametrize(
    "sampling",
    [{"temperature": 0.5}, {"top_p": 0.9}, {"top_k": 20}],
    ids=str,
)
def test_reshaped_sampling_needs_processed_log_probs(changed, sampling):
    """A log probability of the untouched logits is not that of the sampled token (huggingface/trl#4159)."""
    (name, value), *_ = sampling.items()
    change = {f"contract.rollout.{name}": value, f"{ROLLOUT}.{name}": value}
    bindings.check(changed(change))
    message = refusal(changed({**change, f"{ROLLOUT}.logprobs_mode": "raw_logprobs"}))
    assert f"{ROLLOUT}.logprobs_mode=raw_logprobs contradicts {ROLLOUT}.{name}={value}" in message


def test_raw_log_probs_of_the_models_own_distribution_are_the_same(changed):
    bindings.check(changed({f"{ROLLOUT}.logprobs_mode": "raw_logprobs"}))


def test_a_repetition_penalty_reshapes_too(changed):
    change = {f"{ROLLOUT}.repetition_penalty": 1.1, f"{ROLLOUT}.logprobs_mode": "raw_logprobs"}
    assert f"{ROLLOUT}.repetition_penalty=1.1" in refusal(changed(change))


def test_without_kl_its_settings_are_free(changed):
    change = {"contract.update.kl_beta": 0, f"{ACTOR}.kl_loss_coef": 0, f"{ACTOR}.use_kl_loss": False}
    bindings.check(changed({**change, f"{ACTOR}.kl_loss_type": "k1"}))


def test_kl_in_the_reward_alone_is_refused_too(changed):
    message = refusal(changed({"algorithm.use_kl_in_reward": True, f"{ACTOR}.use_kl_loss": False}))
    assert "algorithm.use_kl_in_reward=true contradicts contract.update.objective" in message


def test_a_constant_rate_without_warm_up_is_fine(changed):
    bindings.check(changed({f"{ACTOR}.optim.lr_scheduler_type": "constant", f"{ACTOR}.optim.lr_warmup_steps": -1}))


def test_a_gpu_may_train_in_bfloat16(changed):
    key = f"{ACTOR}.fsdp_config.mixed_precision"
    bindings.check(
        changed({"trainer.device": "cuda", key: None, "actor_rollout_ref.ref.fsdp_config.mixed_precision": None})
    )


def test_verls_own_key_for_the_format_may_say_the_same(changed):
    bindings.check(changed({f"{ROLLOUT}.multi_turn.format": "glm", "contract.policy.parser": "glm-strict-v1"}))


def test_sequence_parallel_ranks_share_their_rows(changed):
    bindings.check(changed({"trainer.n_gpus_per_node": 6, f"{ACTOR}.ulysses_sequence_parallel_size": 3}))


def test_lora_with_a_rank_passes(changed):
    bindings.check(changed({"contract.policy.trainable": "lora", f"{MODEL}.lora_rank": 8}))


@pytest.mark.parametrize("key", COUNTS)
def test_a_count_must_be_a_number(changed, key):
    assert f"{key}=many: expected an integer" in refusal(changed({key: "many"}))


def test_every_problem_is_reported_at_once(changed):
    changes = {key: value for change, _ in CONTRADICTIONS[:5] for key, value in change.items()}
    message = refusal(changed({**changes, "trainer.use_v1": False, f"{ROLLOUT}.n": 4}))
    assert all(key in message for key in (*changes, "trainer.use_v1", f"{ROLLOUT}.n"))


def test_components_are_reported_beside_a_broken_contract(changed):
    message = refusal(changed({"contract.credit.estimator": "gae", "trainer.use_v1": False}))
    assert "contract.credit.estimator=gae" in message
    assert "trainer.use_v1=false" in message


def declared(**values):
    """An experiment's choices of credit and update, with verl's keys following them."""
    credit = {"estimator", "reduction", "group_reward_scale"}
    change = {f"contract.{'credit' if name in credit else 'update'}.{name}": value for name, value in values.items()}
    for binding in bindings.BINDINGS:
        if binding.contract_key in change:
            change[binding.verl_key] = binding.to_verl(change[binding.contract_key])
    return change


OFF_POLICY = {"proximal_policy": "step_start", "off_policy_weight": "token"}


@pytest.mark.parametrize(
    "choices",
    [
        {"objective": "ppo_clip", "estimator": "gigpo", "group_reward_scale": "std"},
        {"objective": "dapo", "reduction": "token_mean", "estimator": "grpo", "clip_high": 0.28},
        {
            "objective": "gspo",
            "reduction": "length_normalized",
            "estimator": "grpo",
            "clip_low": 3e-4,
            "clip_high": 4e-4,
        },
        {"objective": "turn_normalized", "reduction": "turn_mass_conserving"},
        {"objective": "dppo", "estimator": "dr_grpo"},
        {"objective": "decoupled", **OFF_POLICY},
        {"objective": "truncated_importance", **OFF_POLICY, "off_policy_weight": "sequence"},
    ],
    ids=lambda choices: choices["objective"],
)
def test_what_is_defined_together_passes(changed, choices):
    bindings.check(changed(declared(**choices)))


@pytest.mark.parametrize(
    ("choices", "keys"),
    [
        ({"objective": "dapo"}, ("contract.credit.reduction=episode_sum", "contract.update.objective=dapo")),
        (
            {"objective": "gspo", "reduction": "length_normalized", "estimator": "gigpo"},
            ("estimator=gigpo", "objective=gspo"),
        ),
        ({"group_reward_scale": "std"}, ("group_reward_scale=std", "estimator=rloo")),
        ({"estimator": "dr_grpo", "reduction": "token_mean"}, ("reduction=token_mean", "estimator=dr_grpo")),
        ({"objective": "decoupled"}, ("off_policy_weight=null", "proximal_policy=behavior_policy")),
        ({"off_policy_weight": "token"}, ("off_policy_weight=token", "objective=reinforce_with_kl")),
        ({"proximal_policy": "step_start"}, ("proximal_policy=step_start", "objective=reinforce_with_kl")),
    ],
    ids=str,
)
def test_what_is_not_defined_together_is_refused(changed, choices, keys):
    message = refusal(changed(declared(**choices)))
    assert all(key in message for key in keys)


def test_several_passes_over_a_batch_need_an_objective_with_a_ratio(changed):
    two = {"contract.update.optimizer_steps_per_fresh_batch": 2, f"{ACTOR}.ppo_epochs": 2}
    bindings.check(changed({**declared(objective="ppo_clip"), **two}))
    assert "it has no ratio" in refusal(changed(two))
