"""What all tests share: examples that are the same on every machine, and leave no files."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "coterie",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("coterie")
