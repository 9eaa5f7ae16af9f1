"""The doctor's topic that computes on each device."""

from types import SimpleNamespace

import pytest
from accel_tests.plugins import ACCELERATOR

from accel_core import Backend, Provenance, Verdict
from accel_core.backend import Visibility
from accel_tools.doctor.experiments.trial import Outcome
from accel_tools.doctor.topics import compute

COMPUTE = ("doctor", "--topic", "compute", "--no-experiments")
#: As CUDA on a host whose fabric manager is not up.
DOES_NOT_START = """
import torch

def ones(*arguments, **options):
    raise RuntimeError("Error 802: system not yet initialized")

torch.ones = ones
"""


@pytest.fixture
def npu(accel):
    """Two devices are counted, and none of them starts."""
    accel.world.module("two_devices", ACCELERATOR.format(count="return 2"))
    accel.world.module("vendor_npu", DOES_NOT_START)
    accel.world.backend(
        "npu",
        device_type="mtia",  # which torch knows without a package
        vendor_import="vendor_npu",
        accelerator="two_devices:Simulated",
        visibility=Visibility(("NPU_VISIBLE_DEVICES",)),
    )
    return accel


def found(accel, **variables):
    path = str(accel.world.site)  # the smallest program is a plain child
    document = accel.json(*COMPUTE, status=1, PYTHONPATH=path, **variables)
    [topic] = document["topics"]
    return {finding["code"]: finding for finding in topic["findings"]}


def test_a_device_that_is_counted_and_does_not_start_is_told_in_the_vendors_words(npu):
    """Case 28: `accel list` said "usable, 8 devices", and nothing was wrong."""
    fails = found(npu)["compute.fails"]
    assert fails["level"] == "error"
    assert "cannot be used: " in fails["what"]
    assert "Error 802: system not yet initialized" in fails["what"]


def test_fewer_devices_than_a_variable_names_are_told(npu):
    missing = found(npu, NPU_VISIBLE_DEVICES="0,1,2")["compute.missing"]
    assert missing["level"] == "warning"
    assert missing["about"] == "npu"
    assert missing["what"] == "only 2 of 3 devices can be counted"


def test_as_many_devices_as_a_variable_names_are_not_missing(npu):
    assert "compute.missing" not in found(npu, NPU_VISIBLE_DEVICES="0,1")


def test_simulated_devices_that_are_missing_are_told():
    """A simulated device is on no bus, so that only the request has the expected number."""
    cuda, cpu = SimpleNamespace(name="cuda"), SimpleNamespace(name="cpu")
    survey = SimpleNamespace(verdicts=(cuda, cpu))

    def count(verdict, request):
        context = SimpleNamespace(environ={"ACCEL_SIMULATE": request})
        return compute._simulated_devices(verdict, context, survey)

    assert count(cuda, "cuda:4") == 4
    assert count(cuda, "CUDA") == 1
    assert count(cpu, "cuda:4") is None
    assert count(SimpleNamespace(name="generic"), "acme:3") == 3


def test_a_simulated_backend_that_counts_no_device_is_told_without_experiments():
    """No other topic reports it: the simulated device is on no bus."""
    verdict = Verdict("npu", Provenance("accel-npu", "1"), Backend("npu", 900, "npu"))
    program = SimpleNamespace(verdict=verdict)
    survey = SimpleNamespace(verdicts=(verdict,))

    def missing(**environ):
        context = SimpleNamespace(environ=environ)
        found = compute._missing_devices_findings(
            context, program, Outcome(count=0), 2, survey
        )
        return [finding.what for finding in found]

    told = ["only 0 of 2 devices can be counted"]
    assert missing(ACCEL_SIMULATE="npu:2") == told
    assert missing() == []  # the topic `candidates` reports it
