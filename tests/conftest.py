"""Settings shared by every test: how hard hypothesis searches (HYPOTHESIS_PROFILE=default|nightly)."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Shared two-core machines stall now and then: a deadline per example would fail tests for no fault of theirs.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("nightly", parent=settings.get_profile("default"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
