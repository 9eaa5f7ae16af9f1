"""The conformance suite: what `Accelerator` promises, as checks that any backend can be run against.

    accel verify acme --level 2
    pytest --pyargs accel_testing.conformance --accel acme

or, in a vendor's own suite:

    from accel_testing.conformance import AcceleratorTests

    class TestAcme(AcceleratorTests):
        backend = "acme"

Needs pytest, which accel-testing requires. `accel verify` runs each group of checks in a child process
with a deadline; under pytest alone they run in its process.
"""

from __future__ import annotations

__all__ = ["AcceleratorTests"]


def __getattr__(name: str) -> object:
    if name != "AcceleratorTests":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from accel_testing.conformance.suite import AcceleratorTests

    return AcceleratorTests
