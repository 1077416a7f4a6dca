"""Environments that ship with the contracts."""
