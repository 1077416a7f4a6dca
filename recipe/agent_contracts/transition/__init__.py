"""Transition contract: what happened in the environment, recorded so that it can be replayed."""
