"""Evaluation: did the update improve tasks that training never saw."""
