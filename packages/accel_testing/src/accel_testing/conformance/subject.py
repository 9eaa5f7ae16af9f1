"""Subject of the checks: the backend by its name, and its accelerator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

import accel_core
from accel_core import Accelerator, Verdict
from accel_testing.conformance import simulated
from accel_testing.conformance.catalogue import name_of

__all__ = ["Subject", "candidate_of"]


def candidate_of(name: str) -> Verdict:
    """Return the backend `name`, or `name@distribution`; if there are several, the highest-ranking one.

    Raises `BackendNotFoundError` if no plugin declares it.
    """
    wanted, _, distribution = name.partition("@")
    found = [each for each in accel_core.discover() if each.name == wanted]
    for each in found:
        if not distribution or each.provenance.distribution == distribution:
            return each
    known = ", ".join(_names())
    raise accel_core.BackendNotFoundError(
        f"{name!r} is no installed backend; installed: {known}. Install the plugin that declares it, or see "
        "`accel list`."
    )


def _names() -> list[str]:
    return list(dict.fromkeys(each.name for each in accel_core.discover()))


class Subject:
    """Gives the checks their backend. A vendor's own suite sets `backend`."""

    #: The backend's name, as in `DS_ACCELERATOR`; empty: what `--accel` says, or else what is chosen.
    backend: ClassVar[str] = ""

    @pytest.fixture(scope="class")
    @classmethod
    def backend_name(cls, request: pytest.FixtureRequest) -> str:
        """Return the name of the backend under test."""
        given = (
            cls.backend
            or (request.config.getoption("--accel", None) or "").partition(":")[0]
        )
        if given == simulated.device()[0] and given and given not in _names():
            return "generic"  # no plugin declares that device
        return given or accel_core.get_accelerator().name

    @pytest.fixture(scope="class")
    @classmethod
    def accelerator(cls, backend_name: str) -> Iterator[Accelerator]:
        """Yield the accelerator under test."""
        found = accel_core.accelerator(backend_name)
        yield found
        found.synchronize()

    @pytest.fixture(autouse=True)
    def _computes_otherwise(self, request: pytest.FixtureRequest) -> None:
        """Expect the checks to fail that the declaration says fail; one that passes is reported."""
        if "accelerator" in request.fixturenames:
            known = dict(
                request.getfixturevalue("accelerator").backend.computes_otherwise
            )
            if words := known.get(name_of(request.function)):
                request.applymarker(pytest.mark.xfail(reason=words, strict=True))

    @pytest.fixture(autouse=True)
    def _device_as_before(self, request: pytest.FixtureRequest) -> Iterator[None]:
        """Give each check the first device, whatever the one before it left selected."""
        yield
        if "accelerator" in request.fixturenames:
            found = request.getfixturevalue("accelerator")
            if found.device_count() > 1:
                found.set_device(0)
