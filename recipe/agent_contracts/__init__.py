"""Contracts that make every gradient of a tool-using agent answerable.

Transition (what happened in the environment), Verification (why the final state deserves its reward)
and Update (how the reward became exactly one policy update). Nothing below this package imports verl,
ray, vllm, sglang or mlflow: `verl_ext` adapts the contracts to them, and imports only point inwards.
"""

__version__ = "0.1.0"
