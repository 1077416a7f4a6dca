"""verl's synchronous trainer under the update contract, in place of its own under the name `sync`."""

from __future__ import annotations

from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from verl_ext.advantages import CreditedAdvantages


class ContractTrainerSync(CreditedAdvantages, PPOTrainerSync):  # type: ignore[misc]
    """What it adds is in the mixins."""


# `register_trainer` refuses a name that is taken, and `trainer_mode=sync` decides more than the class in verl 0.9.1.
TRAINER_REGISTRY["sync"] = ContractTrainerSync
