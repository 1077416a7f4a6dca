"""Adapters from verl 0.9.1 to the contracts: the only package that imports verl, ray, vllm, sglang or mlflow."""

# verl imports `verl_ext.plugin` while it is being imported. Starting there, whatever module of ours comes first, keeps
# that plugin from meeting a half-imported neighbour.
import verl as verl
