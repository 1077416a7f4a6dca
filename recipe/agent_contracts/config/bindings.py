"""How each declared value reaches verl, and the one check of a whole configuration before anything starts.

`BINDINGS` is the table contract key -> verl key -> value. What two keys may not say together, beyond this table, is
in `contradictions` and `components`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from recipe.agent_contracts.config.components import replaced_components
from recipe.agent_contracts.config.contradictions import contradictions
from recipe.agent_contracts.config.experiment import EVALUATED_ONLY, Experiment, read_experiment
from recipe.agent_contracts.config.keys import ACTOR, ROLLOUT, Config, lookup, refuse, shown
from recipe.agent_contracts.update.reduction import VERL_MODES

SAMPLER_KWARGS = "trainer.v1.sampler.sampler_kwargs"


def _same(value: Any) -> Any:
    return value


def _named(names: Mapping[str, Any]) -> Callable[[Any], Any]:
    return lambda value: names[value]


@dataclass(frozen=True)
class Binding:
    """One declared value and the verl key that carries it out."""

    contract_key: str
    verl_key: str
    to_verl: Callable[[Any], Any] = _same


BINDINGS = (
    Binding("contract.rollout.mode", "trainer.v1.trainer_mode", _named({"synchronous": "sync"})),
    Binding("contract.rollout.group_size", f"{ROLLOUT}.n"),
    Binding("contract.rollout.group_size", f"{SAMPLER_KWARGS}.group_size"),
    Binding("contract.rollout.max_failed_groups_per_step", f"{SAMPLER_KWARGS}.max_failed_groups_per_step"),
    Binding("contract.rollout.max_version_lag", f"{SAMPLER_KWARGS}.max_version_lag"),
    Binding("contract.admission", f"{SAMPLER_KWARGS}.admission"),
    Binding("contract.run.folder", f"{SAMPLER_KWARGS}.run_folder"),
    Binding("contract.rollout.temperature", f"{ROLLOUT}.temperature"),
    Binding("contract.rollout.top_p", f"{ROLLOUT}.top_p"),
    Binding("contract.rollout.top_k", f"{ROLLOUT}.top_k", lambda value: -1 if value is None else value),
    Binding("contract.weight_sync.transport", f"{ROLLOUT}.checkpoint_engine.backend", _named({"in_process": "naive"})),
    Binding("contract.credit.estimator", "algorithm.adv_estimator", lambda name: f"contract_{name}"),
    Binding("contract.credit.reduction", f"{ACTOR}.loss_agg_mode", _named(VERL_MODES)),
    Binding(
        "contract.credit.group_reward_scale",
        "algorithm.norm_adv_by_std_in_grpo",
        _named({"none": False, "std": True}),
    ),
    Binding("contract.update.objective", f"{ACTOR}.policy_loss.loss_mode"),
    Binding("contract.update.clip_low", f"{ACTOR}.clip_ratio_low"),
    Binding("contract.update.clip_high", f"{ACTOR}.clip_ratio_high"),
    Binding("contract.update.off_policy_weight", "algorithm.rollout_correction.rollout_is"),
    Binding("contract.update.off_policy_threshold", "algorithm.rollout_correction.rollout_is_threshold"),
    Binding("contract.update.kl_beta", f"{ACTOR}.kl_loss_coef"),
    Binding("contract.update.tasks_per_batch", "data.train_batch_size"),
    Binding("contract.evaluation.attempts_per_task", f"{ROLLOUT}.val_kwargs.n"),
    Binding("contract.evaluation.control", "trainer.val_only", lambda control: control in EVALUATED_ONLY),
)


def check(config: dict[str, Any]) -> Experiment:
    """Check a resolved configuration and return its experiment.

    Args:
        config: The whole composed configuration as plain dicts, interpolations resolved.

    Raises:
        ConfigContradiction: one error that lists every problem; a contradiction names both keys, both values and
            the fix.
    """
    experiment, problems = read_experiment(lookup(config, "contract", {}))
    problems += replaced_components(config)
    if experiment is not None:
        problems += [*_broken_bindings(config), *contradictions(config, experiment)]
    refuse(problems)
    assert experiment is not None
    return experiment


def _broken_bindings(config: Config) -> Iterator[str]:
    for binding in BINDINGS:
        declared = lookup(config, binding.contract_key)
        expected, found = binding.to_verl(declared), lookup(config, binding.verl_key)
        if found != expected or isinstance(found, bool) != isinstance(expected, bool):
            yield (
                f"{shown(binding.contract_key, declared)} contradicts {shown(binding.verl_key, found)}, which must be "
                f"{shown(binding.verl_key, expected).partition('=')[2]}. Set {binding.contract_key} only: verl's key "
                "follows it."
            )
