"""What the model reads of an observation when the experiment declares a limit. The raw one is always kept.

A cut is declared (which side is kept, how many characters), told to the model by a last or first line, and recorded.
It is a function of the raw text alone, so it can be repeated from the record.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class ObservationLimit(msgspec.Struct, frozen=True):
    """The declared limit: `contract.environment.max_observation_chars` and `observation_keeps`."""

    max_chars: int
    """Characters of the raw text that the model reads; the line that tells of the cut comes on top."""
    keeps: Literal["start", "end"]
    """Which side of the raw text."""

    def cut(self, raw: str) -> tuple[str, ObservationCut | None]:
        """What the model reads, and how it was cut. None: it reads the raw text."""
        if len(raw) <= self.max_chars:
            return raw, None
        notice = f"[truncated: {self.max_chars} of {len(raw)} characters]"
        from_start = self.keeps == "start"
        shown = f"{raw[: self.max_chars]}\n{notice}" if from_start else f"{notice}\n{raw[-self.max_chars :]}"
        return shown, ObservationCut(self.max_chars, self.keeps, len(raw))


class ObservationCut(msgspec.Struct, frozen=True):
    """How one observation was cut for the model."""

    max_chars: int
    keeps: Literal["start", "end"]
    num_chars: int
    """Length of the raw text."""
