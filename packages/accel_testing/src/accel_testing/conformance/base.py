"""The base class of the test classes, which selects the backend under test and creates its accelerator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

import accel_core
from accel_core import Accelerator, Verdict
from accel_testing.conformance import simulated
from accel_testing.conformance.catalogue import name_of

__all__ = ["BackendTestBase", "find_verdict"]


def find_verdict(name: str) -> Verdict:
    """Return the verdict on the backend `name`, which may have the form `name@distribution`.

    If several plugins declare the backend, the verdict with the highest rank is returned. Raises
    `BackendNotFoundError` if no plugin declares the backend.
    """
    backend_name, _, distribution = name.partition("@")
    verdicts = [
        verdict for verdict in accel_core.discover() if verdict.name == backend_name
    ]
    for verdict in verdicts:
        if not distribution or verdict.provenance.distribution == distribution:
            return verdict
    installed = ", ".join(_installed_names())
    raise accel_core.BackendNotFoundError(
        f"{name!r} is not an installed backend; installed: {installed}. Install the plugin that declares it, "
        "or see `accel list`."
    )


def _installed_names() -> list[str]:
    """Return the names of all installed backends, without duplicates."""
    return list(dict.fromkeys(verdict.name for verdict in accel_core.discover()))


class BackendTestBase:
    """The base class of the conformance tests, with the fixtures `backend_name` and `accelerator`.

    A vendor's test suite sets the attribute `backend`.
    """

    #: The backend's name, as in `DS_ACCELERATOR`. An empty name means the value of `--accel`, or otherwise
    #: the chosen backend.
    backend: ClassVar[str] = ""

    @pytest.fixture(scope="class")
    @classmethod
    def backend_name(cls, request: pytest.FixtureRequest) -> str:
        """Return the name of the backend under test."""
        option = request.config.getoption("--accel", None) or ""
        name = cls.backend or option.partition(":")[0]
        if not name:
            return accel_core.get_accelerator().name
        simulated_name, _device_type = simulated.simulated_device()
        if name == simulated_name and name not in _installed_names():
            return "generic"  # no plugin declares the simulated device
        return name

    @pytest.fixture(scope="class")
    @classmethod
    def accelerator(cls, backend_name: str) -> Iterator[Accelerator]:
        """Yield the accelerator under test."""
        accelerator = accel_core.accelerator(backend_name)
        yield accelerator
        accelerator.synchronize()

    @pytest.fixture(autouse=True)
    def _expect_known_differences(self, request: pytest.FixtureRequest) -> None:
        """Mark the check as an expected failure if the backend declares that it differs in this respect."""
        if "accelerator" in request.fixturenames:
            accelerator = request.getfixturevalue("accelerator")
            reasons = dict(accelerator.backend.known_differences)
            reason = reasons.get(name_of(request.function))
            if reason:
                request.applymarker(pytest.mark.xfail(reason=reason, strict=True))

    @pytest.fixture(autouse=True)
    def _select_first_device(self, request: pytest.FixtureRequest) -> Iterator[None]:
        """Select the first device again after each check."""
        yield
        if "accelerator" in request.fixturenames:
            accelerator = request.getfixturevalue("accelerator")
            if accelerator.device_count() > 1:
                accelerator.set_device(0)
