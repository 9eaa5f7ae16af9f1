"""Experiments with ranks that do not connect."""

import os

import pytest
from accel_tests.children import clean_environment, run_python

from accel_core.settings import Settings
from accel_tools.doctor.experiments import rank_connection
from accel_tools.doctor.experiments.trial import Outcome
from accel_tools.doctor.records import DiagnosticContext, Level
from accel_tools.doctor.topics import ranks_connect
from accel_train.launch.network import LoopbackFailure


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


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PET_NNODES", "2"),
        ("PET_NNODES", "1:4"),
        ("PET_RDZV_ENDPOINT", "gone.example:29500"),
        ("PET_RDZV_BACKEND", "etcd"),
    ],
)
def test_a_variable_that_stayed_from_a_job_on_several_hosts_is_named(variable, value):
    context = DiagnosticContext(Settings(), {variable: value})
    first = next(iter(ranks_connect.topic(1, 0).examine(context)))
    assert first.code == "ranks.other-hosts"
    assert first.level is Level.WARNING
    assert f"{variable}={value!r}" in first.what
    assert first.step == f"for a job on this host alone: unset {variable}"


@pytest.mark.parametrize(
    "variables",
    [{"PET_NNODES": "1:1"}, {"PET_NNODES": ""}, {"PET_RDZV_BACKEND": "c10d"}],
)
def test_variables_that_suit_a_job_on_one_host_are_not_named(variables):
    context = DiagnosticContext(Settings(), variables)
    assert list(ranks_connect._torchrun_variable_findings(context)) == []


def test_what_keeps_ranks_apart_is_proven(found):
    apart = found(GLOO_SOCKET_IFNAME="eth99")
    assert apart.code == "ranks.not-met"
    assert apart.is_proven
    assert apart.proof == "without GLOO_SOCKET_IFNAME='eth99', the ranks connect"
    assert apart.step == "unset GLOO_SOCKET_IFNAME"


@pytest.mark.nightly(reason="each of ten runs imports torch in two ranks")
def test_two_causes_together_are_proven(found):
    """Each variable alone keeps the ranks apart."""
    apart = found(GLOO_SOCKET_IFNAME="eth99", GLOO_DEVICE_TRANSPORT="bogus")
    assert apart.is_proven
    assert apart.proof == (
        "without GLOO_DEVICE_TRANSPORT='bogus' and without GLOO_SOCKET_IFNAME='eth99', "
        "the ranks connect"
    )


def test_a_name_with_the_address_of_another_host_is_proven(found, monkeypatch):
    """A stale line of /etc/hosts."""
    failure = LoopbackFailure(
        "192.0.2.77, the address of its name node7",
        "it is not an address",
        "correct it",
    )
    failed = Outcome(error="timed out", stage="store")
    monkeypatch.setattr(rank_connection, "run_ranks", lambda *_: failed)
    monkeypatch.setattr(ranks_connect, "check_own_name", lambda: failure)
    apart = found()
    assert apart.is_proven
    assert apart.proof == str(failure)
    assert apart.step == "correct it"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such limits")
def test_a_limit_that_prevents_every_process_has_the_step_that_raises_it():
    """In a child process, because a lowered limit would stay."""
    program = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (50, 4096))
from accel_tools.doctor.experiments.process_settings import step_for_limit
from accel_tools.doctor.experiments.trial import Outcome
print(step_for_limit(Outcome(error="[Errno 24] Too many open files")))
"""
    done = run_python(["-c", program], clean_environment())
    assert done.stdout.startswith("run `ulimit -n 4096` where the limit is set")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such limits")
def test_limits_are_tried_with_ranks():
    """In a child process, because a lowered limit would stay."""
    program = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (30, 4096))
import os
from accel_tools.doctor.experiments.rank_connection import RankJob, experiments
print([str(e) for e in experiments(RankJob(2, dict(os.environ), 60)) if e.change.limits])
"""
    done = run_python(["-c", program], clean_environment())
    assert "without the limit on open files (`ulimit -n` is 30)" in done.stdout


def test_the_store_by_address_is_tried_first():
    job = rank_connection.RankJob(2, {"MASTER_ADDR": "node7"}, 60)
    names = [str(experiment) for experiment in rank_connection.experiments(job)]
    assert names[0].startswith("with torch.distributed's store at 127.0.0.1 ")
    assert "MASTER_ADDR" not in " ".join(names[1:])
