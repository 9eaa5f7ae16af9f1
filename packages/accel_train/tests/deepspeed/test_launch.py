"""DeepSpeed's real launcher, on this host and over stand-ins for other hosts: what its ranks run on."""

import os
import sys

import pytest
from accel_tests import layouts
from accel_tests.children import executable
from accel_tests.ports import free_port

BY_NIGHT = pytest.mark.nightly(reason="the launcher's own options, and lists that it passes on as they are")
ACCEL = ["-m", "accel_core", "deepspeed"]
BY_DEVICE = pytest.mark.parametrize(
    ("device", "backend"),
    [
        pytest.param("cpu", "gloo", marks=pytest.mark.nightly(reason="by day two ranks on a device")),
        ("acme", "accl"),
    ],
)


@pytest.fixture
def variables(request, device):
    found = request.getfixturevalue(f"on_{device}")
    return {name: value for name, value in found.items() if name != "CUDA_VISIBLE_DEVICES"}


@pytest.fixture
def folder(rank_program):
    return rank_program.parent


@pytest.fixture
def launch(child, folder):
    """`launch(options, environ)`: the ranks' answers, in order of rank."""

    def run(options, environ, script=("rank.py",)):
        port = ["--master_port", str(free_port())]
        ended = child([*ACCEL, *port, *options, *script], environ, cwd=folder)
        return sorted(ended.answers, key=lambda answer: answer["rank"])

    return run


def ranks(answers, **fields):
    return [answer["rank"] for answer in answers if fields.items() <= answer.items()]


@BY_DEVICE
def test_two_ranks_on_this_host(launch, variables, device, backend):
    answers = launch(["--num_gpus", "2"], variables, script=("rank.py", "--epochs", "2"))
    assert ranks(answers, name=device, same=True, total=2.0, backend=backend, others=False) == [0, 1]
    assert [a["arguments"] for a in answers] == [[f"--local_rank={n}", "--epochs", "2"] for n in (0, 1)]


VISIBLE = [
    pytest.param("0,1", [], "0,1", marks=BY_NIGHT),
    ("GPU-aaaa,GPU-bbbb", ["--include", "localhost:1"], "GPU-bbbb"),
]


@pytest.mark.parametrize("device", ["acme"])
@pytest.mark.parametrize(("given", "options", "seen"), VISIBLE)
def test_what_the_user_made_visible_stays_so(launch, variables, device, given, options, seen):
    """DeepSpeed reads the value as integers; where it holds UUIDs, its slots are places in the list."""
    answers = launch(options, {**variables, "ACME_VISIBLE_DEVICES": given})
    assert [answer["visible"] for answer in answers] == [seen] * len(seen.split(","))


ENDS = [
    ("acme", {"ACME_VISIBLE_DEVICES": "GPU-a,GPU-b"}, ["--num_gpus", "3", "rank.py"], 1, "names 2 devices"),
    ("cpu", {}, ["--num_gpus", "1", "fails.py"], 5, ""),
    ("cpu", {}, ["--help"], 0, "--hostfile"),
    # Ranks that would not hear of the activation are not started.
    ("cpu", {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, ["--num_gpus", "1", "rank.py"], 1, "Unset it"),
]


@pytest.mark.parametrize(("device", "more", "arguments", "status", "said"), ENDS)
def test_status_and_words(child, folder, variables, device, more, arguments, status, said):
    (folder / "fails.py").write_text("import sys; sys.exit(5)")
    ended = child([*ACCEL, *arguments], {**variables, **more}, cwd=folder)
    assert ended.returncode == status
    assert said in ended.stdout + ended.stderr
    # DeepSpeed 0.16 logs to stdout before it.
    assert ("usage: accel deepspeed " in ended.stdout) == (arguments == ["--help"])
    if more.keys() == {"TORCH_DEVICE_BACKEND_AUTOLOAD"}:
        assert ended.stdout == ""
        assert "Traceback" not in ended.stderr


def test_an_installation_without_the_entry_point_is_found_out(monkeypatch):
    from accel_core.toolkit import packages
    from accel_train.deepspeed import _children

    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD", raising=False)
    assert _children.obstacle() == ""
    installed = packages.entry_points
    for missing in ("torch.backends", "accel.integrations"):

        def without(group, missing=missing):
            return () if group == missing else installed(group)

        monkeypatch.setattr(packages, "entry_points", without)
        assert f"entry point in group {missing} is not installed" in _children.obstacle()
        assert "Install accel-train again" in _children.obstacle()


# --- several hosts --------------------------------------------------------------------------------------

#: What pdsh does, without the network: the command in a shell of each host, with a login's bare environment.
PDSH = """
import subprocess, sys
arguments = sys.argv[1:]
hosts = arguments[arguments.index("-w") + 1].split(",")
command = " ".join(arguments[arguments.index("-w") + 2:])
bare = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
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
        broken = {"torch_bad": "raise OSError('libbad')"}
        layouts.dist_info(folder / "more", "torch-bad", "1.0", groups, broken)
        variables = {**variables, "PYTHONPATH": str(folder / "more")}
    executable(folder / "bin" / "pdsh", PDSH, by=sys.executable)
    (folder / "hosts").write_text("one slots=1\ntwo slots=1\n")
    path = os.pathsep.join((str(folder / "bin"), variables["PATH"]))
    options = ["--hostfile", "hosts", "--launcher", "pdsh", "--master_addr", "127.0.0.1", "--no_ssh_check"]
    answers = launch(options, {**variables, "PATH": path})
    seen = {"name": device, "same": True, "total": 2.0, "backend": backend, "timeout": "77"}
    assert ranks(answers, **seen) == [0, 1]
    assert [answer["node"] for answer in answers] == ["0", "1"]
