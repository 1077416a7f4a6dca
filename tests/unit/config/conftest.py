"""The shipped configuration, composed once, as the plain dicts that the checks read."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

Config = dict[str, Any]
REQUIRED = [
    "data.train_files=train.parquet",
    "data.val_files=heldout.parquet",
    "actor_rollout_ref.model.path=model",
    "actor_rollout_ref.model.tokenizer_path=tokenizer",
]


@pytest.fixture(scope="session")
def composed() -> Config:
    with initialize_config_module("recipe.agent_contracts.config", version_base=None):
        config = compose("agent_contracts", overrides=["platform=cpu", *REQUIRED])
    return OmegaConf.to_container(config, resolve=True)


@pytest.fixture
def changed(composed: Config) -> Callable[[dict[str, Any]], Config]:
    """A function from changed keys to a copy of the configuration with only these changed, as no follower moves."""

    def change(values: dict[str, Any]) -> Config:
        config = copy.deepcopy(composed)
        for key, value in values.items():
            *path, leaf = key.split(".")
            node = config
            for part in path:
                node = node.setdefault(part, {})
            node[leaf] = value
        return config

    return change
