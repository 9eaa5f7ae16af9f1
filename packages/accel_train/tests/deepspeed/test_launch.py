"""DeepSpeed's real launcher, on this host and over stand-ins for other hosts: what its ranks run on."""

from __future__ import annotations

import os
import sys

import pytest
from accel_tests import layouts
from accel_tests.ports import free_port

RANK = """
import json, os, sys, time
import torch, deepspeed
import accel_core
theirs = deepspeed.get_accelerator()
# Not deepspeed.init_distributed(): on CPU it compiles an operator first.
torch.distributed.init_process_group(theirs.communication_backend_name())
total = torch.ones(1, device=theirs.current_device_name())
torch.distributed.all_reduce(total)
answer = json.dumps(dict(
    rank=int(os.environ["RANK"]), node=os.environ.get("CROSS_RANK"), name=theirs.name,
    same=theirs is accel_core.get_accelerator(), total=total.item(), arguments=sys.argv[1:],
    backend=torch.distributed.get_backend(), visible=os.environ.get("ACME_VISIBLE_DEVICES"),
    others="CUDA_VISIBLE_DEVICES" in os.environ,
    timeout=os.environ.get("ACCEL_PROBE_TIMEOUT"),
))
sys.stdout.write(f"ANSWER {answer}\\n")  # one write, for the other rank writes too
torch.distributed.destroy_process_group()
# gloo's threads drop the last tensors with Python's lock; while Python ends this aborts (pytorch#190489).
time.sleep(0.2)
"""
ACCEL = ["-m", "accel_core", "deepspeed"]
BY_DEVICE = pytest.mark.parametrize(
    ("device", "backend"),
    [
        pytest.param(
            "cpu", "gloo", marks=pytest.mark.nightly(reason="two ranks on the CPU; by day on a device")
        ),
        ("acme", "accl"),
    ],
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "rank.py").write_text(RANK)
    return tmp_path


@pytest.fixture
def variables(request, device):
    found = request.getfixturevalue(f"on_{device}")
    return {name: value for name, value in found.items() if name != "CUDA_VISIBLE_DEVICES"}


@pytest.fixture
def launch(child, folder):
    """`launch(options, environ)`: the ranks' answers, in order of rank."""

    def run(options, environ, *, start=ACCEL, script=("rank.py",)):
        port = ["--master_port", str(free_port())]
        ended = child([*start, *port, *options, *script], environ, cwd=folder)
        return sorted(ended.answers, key=lambda answer: answer["rank"])

    return run


def ranks(answers, **fields):
    return [answer["rank"] for answer in answers if fields.items() <= answer.items()]


@BY_DEVICE
def test_two_ranks_on_this_host(launch, variables, device, backend):
    answers = launch(["--num_gpus", "2"], variables, script=("rank.py", "--epochs", "2"))
    assert ranks(answers, name=device, same=True, total=2.0, backend=backend, others=False) == [0, 1]
    assert [a["arguments"] for a in answers] == [[f"--local_rank={n}", "--epochs", "2"] for n in (0, 1)]


@pytest.mark.nightly(reason="starts DeepSpeed's launcher for its own options")
@pytest.mark.parametrize("device", ["acme"])
def test_the_launchers_options_are_its_own(launch, variables, device):
    options = ["--include", "localhost:1", "--no_local_rank", "--module"]
    [answer] = launch(options, variables, script=("rank",))
    assert answer["name"] == "acme"
    assert answer["visible"] == "1"
    assert answer["arguments"] == []


@pytest.mark.parametrize("device", ["acme"])
@pytest.mark.parametrize(
    ("given", "options", "seen"),
    [
        pytest.param(
            "0,1",
            [],
            "0,1",
            marks=pytest.mark.nightly(reason="indices, which DeepSpeed reads itself; by day UUIDs"),
        ),
        pytest.param(
            "GPU-aaaa,GPU-bbbb",
            [],
            "GPU-aaaa,GPU-bbbb",
            marks=pytest.mark.nightly(reason="all of the named devices; by day one of them"),
        ),
        ("GPU-aaaa,GPU-bbbb", ["--include", "localhost:1"], "GPU-bbbb"),
    ],
)
def test_what_the_user_made_visible_stays_so(launch, variables, device, given, options, seen):
    """DeepSpeed reads the value as integers; where it holds UUIDs, its slots are places in the list."""
    answers = launch(options, {**variables, "ACME_VISIBLE_DEVICES": given})
    assert {answer["visible"] for answer in answers} == {seen}
    assert len(answers) == len(seen.split(","))


@pytest.mark.parametrize("device", ["acme"])
def test_more_ranks_than_named_devices_are_refused(child, folder, variables, device):
    environ = {**variables, "ACME_VISIBLE_DEVICES": "GPU-aaaa,GPU-bbbb"}
    ended = child([*ACCEL, "--num_gpus", "3", "rank.py"], environ, cwd=folder)
    assert ended.returncode == 1
    assert "ACME_VISIBLE_DEVICES='GPU-aaaa,GPU-bbbb' names 2 devices" in ended.stderr


@pytest.mark.nightly(
    reason="by day `accel deepspeed` starts the same launcher, and a child gets the variable"
)
@pytest.mark.parametrize("device", ["acme"])
def test_deepspeeds_own_command_is_activated_by_the_variable(launch, variables, device):
    environ = {**variables, "ACCEL_INTEGRATIONS": "deepspeed"}
    answers = launch(["--num_gpus", "2"], environ, start=["-m", "deepspeed.launcher.runner"])
    assert ranks(answers, name="acme", same=True, total=2.0) == [0, 1]


def test_a_failing_rank_gives_its_status(child, folder, on_cpu):
    (folder / "fails.py").write_text("import sys; sys.exit(5)")
    assert child([*ACCEL, "--num_gpus", "1", "fails.py"], on_cpu, cwd=folder).returncode == 5


def test_help_is_the_launchers(child, on_cpu):
    ended = child([*ACCEL, "--help"], on_cpu)
    assert ended.returncode == 0
    assert "usage: accel deepspeed " in ended.stdout  # DeepSpeed 0.16 logs to stdout before it
    assert "--hostfile" in ended.stdout


def test_ranks_that_would_not_hear_of_it_are_not_started(child, folder, on_cpu):
    environ = {**on_cpu, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    ended = child([*ACCEL, "--num_gpus", "1", "rank.py"], environ, cwd=folder)
    assert ended.returncode == 1
    assert "Unset it" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_an_installation_without_the_entry_point_is_found_out(monkeypatch):
    from accel_core.toolkit import packages
    from accel_train.deepspeed import _children

    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD", raising=False)
    assert _children.obstacle() == ""
    installed = packages.entry_points
    for missing in ("torch.backends", "accel.integrations"):

        def without(group: str, missing: str = missing):
            return () if group == missing else installed(group)

        monkeypatch.setattr(packages, "entry_points", without)
        assert f"entry point in group {missing} is not installed" in _children.obstacle()
        assert "Install accel-train again" in _children.obstacle()


# --- several hosts --------------------------------------------------------------------------------------

#: What pdsh does, without the network: the command in a shell of each host, with a login's bare environment.
PDSH = f"""#!{sys.executable}
import subprocess, sys
arguments = sys.argv[1:]
hosts = arguments[arguments.index("-w") + 1].split(",")
command = " ".join(arguments[arguments.index("-w") + 2:])
bare = {{"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}}
commands = [command.replace("%n", str(number)) for number, _ in enumerate(hosts)]
running = [subprocess.Popen(["sh", "-c", each], env=bare) for each in commands]
sys.exit(max(process.wait() for process in running))
"""


@BY_DEVICE
def test_other_hosts_get_the_choice_and_the_activation(launch, variables, device, backend, folder):
    """Their shells have nothing but what the launcher exports; on the CPU `import torch` is broken there."""
    variables = {**variables, "ACCEL_PROBE_TIMEOUT": "77"}
    if device == "cpu":
        groups = {"torch.backends": {"bad": "torch_bad:autoload"}}
        layouts.dist_info(
            folder / "more", "torch-bad", "1.0", groups, {"torch_bad": "raise OSError('libbad')"}
        )
        variables = {**variables, "PYTHONPATH": str(folder / "more")}
    (folder / "bin").mkdir()
    (folder / "bin" / "pdsh").write_text(PDSH)
    (folder / "bin" / "pdsh").chmod(0o755)
    (folder / "hosts").write_text("one slots=1\ntwo slots=1\n")
    path = os.pathsep.join((str(folder / "bin"), variables["PATH"]))
    options = ["--hostfile", "hosts", "--launcher", "pdsh", "--master_addr", "127.0.0.1", "--no_ssh_check"]
    answers = launch(options, {**variables, "PATH": path})
    assert ranks(answers, name=device, same=True, total=2.0, backend=backend) == [0, 1]
    assert [answer["node"] for answer in answers] == ["0", "1"]
    assert [answer["timeout"] for answer in answers] == ["77"] * 2
