"""Experiments with ranks that do not connect."""

import os

import pytest

from accel_core.settings import Settings
from accel_tools.doctor.records import DiagnosticContext
from accel_tools.doctor.topics import ranks_connect


@pytest.fixture
def found(monkeypatch):
    """Returns the finding on two ranks of this host, with these variables."""
    pytest.importorskip("torch")

    def find(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        context = DiagnosticContext(Settings(), dict(os.environ))
        [finding] = ranks_connect.topic(2, 120).examine(context)
        return finding

    return find


def test_ranks_of_this_host_meet(found):
    assert found().code == "ranks.met"


def test_a_number_of_hosts_that_stayed_in_the_environment_is_named():
    context = DiagnosticContext(Settings(), {"PET_NNODES": "2"})
    topic = ranks_connect.topic(1, 0)
    first = next(iter(topic.examine(context)))
    assert (first.code, first.level.value) == ("ranks.other-hosts", "warning")
    assert first.step.startswith("unset PET_NNODES")


def test_what_keeps_ranks_apart_is_proven(found):
    apart = found(GLOO_SOCKET_IFNAME="eth99")
    assert apart.code == "ranks.not-met"
    assert apart.proof == "Proven: without GLOO_SOCKET_IFNAME='eth99' they connect"
    assert apart.step == "unset GLOO_SOCKET_IFNAME"
