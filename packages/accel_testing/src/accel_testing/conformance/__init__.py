"""The conformance suite: checks that a backend conforms to the interface `Accelerator`.

    accel verify acme --level 2
    pytest --pyargs accel_testing.conformance --accel acme

Alternatively, in a vendor's test suite:

    from accel_testing.conformance import AcceleratorTests

    class TestAcme(AcceleratorTests):
        backend = "acme"

The suite uses pytest, on which accel-testing depends. `accel verify` runs each group of checks in a child
process with a time limit. If pytest is run directly, all checks run in pytest's process.
"""

from __future__ import annotations

__all__ = ["AcceleratorTests"]


def __getattr__(name: str) -> object:
    if name != "AcceleratorTests":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from accel_testing.conformance.suite import AcceleratorTests

    return AcceleratorTests
