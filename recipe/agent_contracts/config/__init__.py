"""Hydra configuration on top of verl's ppo_trainer, and the checks that run before any process starts."""
