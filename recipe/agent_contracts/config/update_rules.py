"""Which credit, reduction and objective fit together, and what verl's own keys may not add to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from recipe.agent_contracts.config.experiment import Experiment
from recipe.agent_contracts.config.keys import ACTOR, Config, clash, lookup
from recipe.agent_contracts.update.credit import PER_TURN
from recipe.agent_contracts.update.objectives import OBJECTIVES

GRADIENT_IS_KL = ("k2", "mse")
"""KL estimators whose own gradient is the gradient of the KL divergence."""

OBJECTIVE, ESTIMATOR = "contract.update.objective", "contract.credit.estimator"
REDUCTION, SCALE = "contract.credit.reduction", "contract.credit.group_reward_scale"

Rule = Callable[[Config, Experiment], Iterator[str]]


def _compatible(config: Config, experiment: Experiment) -> Iterator[str]:
    """The table of objective x reduction x credit."""
    objective, credit = OBJECTIVES[experiment.update.objective], experiment.credit
    if credit.reduction not in objective.reductions:
        known = ", ".join(sorted(objective.reductions))
        why = "the two are not defined together"
        yield clash(config, REDUCTION, OBJECTIVE, why, f"Set {REDUCTION} to one of: {known}")
    if credit.estimator in PER_TURN and not objective.per_turn_credit:
        why = "one ratio for the whole episode cannot carry advantages that differ between its turns"
        yield clash(config, ESTIMATOR, OBJECTIVE, why, f"Set {ESTIMATOR}=rloo or grpo")
    if credit.group_reward_scale == "std" and credit.estimator in ("rloo", "dr_grpo"):
        why = "the estimator is defined without a scale"
        yield clash(config, SCALE, ESTIMATOR, why, f"Set {SCALE}=none, or {ESTIMATOR}=grpo")
    if credit.estimator == "dr_grpo" and credit.reduction != "episode_sum":
        why = "Dr. GRPO removes what depends on an episode's length"
        yield clash(config, REDUCTION, ESTIMATOR, why, f"Set {REDUCTION}=episode_sum")


def _policies(config: Config, experiment: Experiment) -> Iterator[str]:
    """Which policies the objective is about."""
    update, weight = experiment.update, "contract.update.off_policy_weight"
    off_policy = OBJECTIVES[update.objective].off_policy
    if off_policy and update.off_policy_weight is None:
        why = "it weights the behaviour policy's samples to the proximal policy"
        yield clash(config, weight, OBJECTIVE, why, f"Set {weight}=token or sequence")
    if not off_policy and update.off_policy_weight is not None:
        why = "the objective has no place for such weights"
        yield clash(config, weight, OBJECTIVE, why, f"Set {OBJECTIVE}=decoupled, or {weight}=null")
    proximal = "contract.update.proximal_policy"
    needed = "step_start" if off_policy else "behavior_policy"
    if update.proximal_policy != needed:
        why = "the three policies must be told apart" if off_policy else "the ratio would be to another policy"
        yield clash(config, proximal, OBJECTIVE, why, f"Set {proximal}={needed}")


def _rejection(config: Config, experiment: Experiment) -> Iterator[str]:
    for key, neutral in (("rollout_rs", None), ("bypass_mode", False), ("rollout_is_batch_normalize", False)):
        path = f"algorithm.rollout_correction.{key}"
        if lookup(config, path) not in (None, neutral):
            why = "tokens would be reweighted or left out in a way that the update's record does not hold"
            yield clash(config, path, OBJECTIVE, why, f"Remove the override of {path}")


def _optimizer_steps(config: Config, experiment: Experiment) -> Iterator[str]:
    declared, number = (
        "contract.update.optimizer_steps_per_fresh_batch",
        experiment.update.optimizer_steps_per_fresh_batch,
    )
    if OBJECTIVES[experiment.update.objective].one_step and number != 1:
        why = "it has no ratio that would correct a second step on the same batch"
        yield clash(config, declared, OBJECTIVE, why, f"Set {declared}=1")
    if lookup(config, f"{ACTOR}.ppo_epochs") != number:
        why = f"that is another number of passes than {number}"
        yield clash(config, f"{ACTOR}.ppo_epochs", declared, why, f"Leave {ACTOR}.ppo_epochs to follow {declared}")
    mini, batch = f"{ACTOR}.ppo_mini_batch_size", "data.train_batch_size"
    if lookup(config, mini) != lookup(config, batch):
        parts = math.ceil(lookup(config, batch) / lookup(config, mini))
        why = f"each pass would make {parts} optimizer steps" if parts > 1 else "verl would pad the batch up to it"
        yield clash(config, mini, batch, why, f"Leave {mini} to follow contract.update.tasks_per_batch")


def _objective(config: Config, experiment: Experiment) -> Iterator[str]:
    if lookup(config, f"{ACTOR}.entropy_coeff") != 0:
        yield clash(
            config,
            f"{ACTOR}.entropy_coeff",
            "contract.update.objective",
            "an entropy bonus is another objective",
            f"Set {ACTOR}.entropy_coeff=0",
        )


def _kl(config: Config, experiment: Experiment) -> Iterator[str]:
    in_loss, in_reward, kind = f"{ACTOR}.use_kl_loss", "algorithm.use_kl_in_reward", f"{ACTOR}.kl_loss_type"
    if lookup(config, in_reward):
        why = "the KL would count twice" if lookup(config, in_loss) else "the declared KL belongs to the loss"
        other = in_loss if lookup(config, in_loss) else "contract.update.objective"
        yield clash(config, in_reward, other, why, f"Set {in_reward}=false")
    if experiment.update.kl_beta == 0:
        return
    if not lookup(config, in_loss):
        why = "the declared KL would be left out of the loss"
        yield clash(config, in_loss, "contract.update.kl_beta", why, f"Set {in_loss}=true, or kl_beta=0")
    name = str(lookup(config, kind))
    if not name.endswith("+") and name not in GRADIENT_IS_KL:
        why = (
            f"the value of {name} estimates the KL, but its gradient is not the KL's; with a trailing + verl keeps "
            "the value and takes the gradient of k2, which is (straight-through)"
        )
        yield clash(config, kind, "contract.update.kl_beta", why, f"Set {kind}=low_var_kl+")


UPDATE_RULES: tuple[Rule, ...] = (_compatible, _policies, _rejection, _optimizer_steps, _objective, _kl)
