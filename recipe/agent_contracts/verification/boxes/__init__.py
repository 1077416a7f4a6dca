"""Boxes: processes that cannot reach what grades them, each with the list of what it guarantees."""
