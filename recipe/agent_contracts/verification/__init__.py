"""Verification contract: why the final state deserves its reward, decided where the agent cannot reach."""
