"""Adapters from verl 0.9.1 to the contracts: the only package that imports verl, ray, vllm, sglang or mlflow."""
