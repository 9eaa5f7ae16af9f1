"""`accel run`: what it plans for each rank, what it refuses, and that ranks really get it."""

import json
import os
import signal
import socket
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from accel_tests.children import accel, clean_environment, executable, run_python
from accel_tests.plugins import NO_DEVICE

from accel_core.backend import Visibility
from accel_train_startup import STARTUP_FOLDER

pytestmark = [
    pytest.mark.skipif(not find_spec("torch"), reason="torchrun is torch's"),
    pytest.mark.skipif(
        sys.platform == "win32", reason="torchrun's agent is tested on POSIX"
    ),
]


@pytest.fixture
def planned(world, tmp_path):
    """`planned(*arguments, **variables)`: `accel run --dry-run train.py` where there are two cards of mlu."""
    register = "import torch\ntorch.distributed.Backend.register_backend('cncl', print, devices=['mlu'])\n"
    register += (
        "import sys\nprint('forked:', 'accel_train.commands.run' in sys.modules)"
    )
    world.module("brings_cncl", register)
    world.backend(
        "mlu",
        visibility=Visibility(
            variables=("CN_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES"), grammar="mlu"
        ),
        communication_backend="cncl",
        vendor_import="brings_cncl",
    )
    script = tmp_path / "train.py"
    script.write_text("")

    def run(*arguments, **variables):
        code = accel("run", *arguments, "--dry-run", str(script))
        return world.child(code, torch="real", variables=variables, timeout=120)

    return run


def test_dashes_before_the_script_end_our_options(tmp_path):
    script = tmp_path / "show.py"
    script.write_text("import sys; print(sys.argv[1:])")
    words = ["--no-bind", "--nproc-per-node", "1", "--", str(script), "--logs", "x"]
    done = run_python(["-c", accel("run", *words)], clean_environment())
    assert done.succeeded().stdout == "['--logs', 'x']\n"


def test_a_rank_for_each_device_and_the_backend_passed_on(planned):
    done = planned(OMP_NUM_THREADS="").succeeded()
    first, common, *ranks = done.stdout.splitlines()
    assert first == "mlu (accel-mlu 1.0) over cncl, 2 devices here, nodes 1:1"
    assert common == (
        "all ranks: ACCEL_IMPORT=brings_cncl DS_ACCELERATOR=mlu ACCEL_COMMUNICATION_BACKEND=cncl "
        "ACCEL_INTEGRATIONS=auto"
    )
    assert [line.split(",")[0] for line in ranks] == [
        "local rank 0: mlu:0",
        "local rank 1: mlu:1",
    ]
    assert all("cores " in line and "OMP_NUM_THREADS=" in line for line in ranks)
    assert "VISIBLE_DEVICES" not in done.stdout
    assert "forked: True" in done.stderr  # from the launcher, which had imported torch


def test_a_mask_that_misnames_devices_is_told_once_with_the_step(planned):
    told = (
        "Warning: CN_VISIBLE_DEVICES='1,0,x': 'x' ends the list. Next step: export "
        "CN_VISIBLE_DEVICES=1,0\n"
    )
    assert planned(CN_VISIBLE_DEVICES="1,0,x").succeeded().stderr.count(told) == 1


def test_what_is_refused_and_the_status_that_says_so(planned):
    for arguments, variables, status, message in (
        (
            ["--nproc-per-node", "4"],
            {},
            1,
            "Error: --nproc-per-node 4: the number of ranks (4) exceeds the number of mlu devices (2).",
        ),
        (
            ["--nproc-per-node=4"],
            {"CN_VISIBLE_DEVICES": "1,0"},
            1,
            "Start no more ranks than devices, or unset CN_VISIBLE_DEVICES.",
        ),
        (
            [],
            {"ACCEL_PROBE": "sideways"},
            2,
            "Error: ACCEL_PROBE='sideways' is not valid",
        ),
        (
            ["--nprocs-per-node", "2"],
            {},
            2,
            "unknown option --nprocs-per-node. Did you mean --nproc-per-node?",
        ),
        (["--no_bind"], {}, 2, "unknown option --no_bind. Did you mean --no-bind?"),
        (
            ["--timeout", "0"],
            {},
            2,
            "--timeout: '0' is not valid, expected a number of seconds above 0",
        ),
    ):
        done = planned(*arguments, **variables)
        assert (done.returncode, done.stdout) == (status, ""), done.stderr
        assert message in done.stderr


def test_the_fall_back_is_told_once_and_the_ranks_are_pinned_to_it(world, tmp_path):
    """And another vendor's package, which would break every rank's `import torch`, is kept out of them."""
    world.backend("npu", 700, extra=NO_DEVICE)
    world.module("torch_bad", "raise ImportError('libbad.so')")
    world.distribution(
        "torch-bad", "1.0", {"torch.backends": {"bad": "torch_bad:autoload"}}
    )
    (tmp_path / "train.py").write_text("")
    code = accel("run", "--no-integrations", "--dry-run", str(tmp_path / "train.py"))
    done = world.child(
        code,
        torch="real",
        timeout=120,
        variables={"TORCH_DEVICE_BACKEND_AUTOLOAD": "1"},
    )
    assert (
        done.stderr.count("Warning: No usable accelerator; falling back to the CPU")
        == 1
    )
    assert (
        "DS_ACCELERATOR=cpu ACCEL_COMMUNICATION_BACKEND=gloo ACCEL_INTEGRATIONS=none"
        in done.stdout
    )
    assert f"TORCH_DEVICE_BACKEND_AUTOLOAD=0 PYTHONPATH={STARTUP_FOLDER}" in done.stdout
    assert (
        "\nTORCH_DEVICE_BACKEND_AUTOLOAD=0 is set for the ranks, because torch-bad 1.0 fails "
        "when torch loads it "
        "(torch.backends: bad = torch_bad:autoload): ImportError: libbad.so.\n"
        in done.stderr
    )


def test_help_shows_ours_and_torchruns_options_and_without_torch_what_to_install(
    planned, world
):
    said = planned("--help").stdout
    assert said.index("--one-device-per-rank") < said.index("--rdzv-endpoint")
    assert "--local-ranks-filter" not in said
    everything = planned("--no-bind", "--help-all").stdout
    assert everything.index("--one-device-per-rank") < everything.index(
        "--local-ranks-filter"
    )
    without = world.child(accel("run", "--help"), torch="none").succeeded()
    assert "--one-device-per-rank" in without.stdout
    assert "torchrun's options are not shown: torch is not installed" in without.stdout
    done = world.child(accel("run", "train.py"), torch="none")
    assert done.returncode != 0
    assert "torch is not installed: run `accel setup`" in done.stderr


# --- real ranks -----------------------------------------------------------------------------------------

TELL = """
import json, os, sys
from pathlib import Path
names = ["DS_ACCELERATOR", "ACCEL_COMMUNICATION_BACKEND", "OMP_NUM_THREADS", "WORLD_SIZE", "MINE"]
said = {name: os.environ.get(name) for name in names}
said["cores"] = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
said["argv"], said["name"] = sys.argv, __name__
Path(sys.argv[1], os.environ["RANK"]).write_text(json.dumps(said))
sys.exit(int(sys.argv[2]))
"""


def launch(tmp_path, *arguments, status=0, **variables):
    """Run the script in ranks on the CPU; gives what each rank said, and how the launcher ended."""
    (tmp_path / "told").mkdir(exist_ok=True)
    (tmp_path / "tell.py").write_text(TELL)
    environ = clean_environment(
        DS_ACCELERATOR="cpu", PYTHONPATH=str(tmp_path), **variables
    )
    environ.pop("OMP_NUM_THREADS", None) if "OMP_NUM_THREADS" not in variables else None
    command = [
        "-m",
        "accel_core",
        "run",
        *arguments,
        str(tmp_path / "told"),
        str(status),
        "--deep",
    ]
    done = run_python(command, environ, cwd=tmp_path)
    told = [
        json.loads(file.read_text()) for file in sorted((tmp_path / "told").iterdir())
    ]
    return told, done


def test_ranks_get_cores_of_their_own_and_what_was_chosen(tmp_path):
    told, done = launch(tmp_path, "--nproc-per-node", "2", "tell.py", MINE="kept")
    for said in told if done.succeeded() else []:
        assert said["ACCEL_COMMUNICATION_BACKEND"] in ("gloo", "ccl")
        mine = [said[name] for name in ("DS_ACCELERATOR", "WORLD_SIZE", "MINE", "name")]
        assert mine == ["cpu", "2", "kept", "__main__"]
        assert said["argv"] == ["tell.py", str(tmp_path / "told"), "0", "--deep"]
        assert int(said["OMP_NUM_THREADS"]) >= 1
    allowed = os.sched_getaffinity(0)
    if len(allowed) > 1:
        assert not set(told[0]["cores"]) & set(told[1]["cores"])
        assert {*told[0]["cores"], *told[1]["cores"]} <= allowed


def test_a_module_unbound_with_its_count_of_threads_and_torchruns_exit_status(tmp_path):
    options = [
        "--no-bind",
        "--nproc-per-node",
        "1",
        "--max-restarts",
        "1",
        "-m",
        "tell",
    ]
    (told,), done = launch(tmp_path, *options, status=5, OMP_NUM_THREADS="3")
    assert told["cores"] == sorted(os.sched_getaffinity(0))
    assert told["OMP_NUM_THREADS"] == "3"
    assert done.returncode == 1
    assert "tell FAILED" in done.stderr
    assert "exitcode  : 5" in done.stderr
    assert "accel_core/cli" not in done.stderr  # no traceback of ours


@pytest.mark.nightly(reason="starts torchrun twice for a way that few use")
def test_a_command_is_started_too_or_named(tmp_path):
    executable(tmp_path / "run.sh", f'exec "{sys.executable}" tell.py "$@"')
    told, done = launch(tmp_path, "--no-python", "./run.sh")
    assert done.returncode == 0, done.stderr
    assert told[0]["argv"][2:] == ["0", "--deep"]
    executable(tmp_path / "run.sh", by="/nowhere/sh")
    _, done = launch(tmp_path, "--no-python", "./run.sh")
    assert done.returncode == 1
    assert (
        "accel run: ./run.sh cannot be started: No such file or directory"
        in done.stderr
    )


#: Two ranks that save their work at the signal; the launcher is their parent.
SAVING = """
import os, signal, sys, time
def save(number, frame):
    print("saved by", signal.Signals(number).name, flush=True)
    sys.exit()
signal.signal(signal.SIGUSR1, save)
if os.environ["RANK"] == "0":
    time.sleep(1)
    os.kill(os.getppid(), signal.SIGUSR1)
time.sleep(60)
"""


def test_the_signal_by_which_slurm_announces_the_end_reaches_the_script(tmp_path):
    (tmp_path / "save.py").write_text(SAVING)
    options = ["-m", "accel_core", "run", "--nproc-per-node", "2", "save.py"]
    environ = clean_environment(DS_ACCELERATOR="cpu")
    done = run_python(options, environ, cwd=tmp_path)
    assert done.returncode == 128 + signal.SIGUSR1
    assert done.stdout.count("saved by SIGUSR1") >= 1


TRAINS = """
import sys, torch
model = torch.nn.Linear(2, 2)
if "group" in sys.argv:
    torch.distributed.init_process_group("gloo")
    torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize(("words", "is_said"), [([], True), (["group"], False)])
def test_ranks_that_never_met_are_told_that_each_trained_alone(
    tmp_path, words, is_said
):
    (tmp_path / "train.py").write_text(TRAINS)
    command = ["-m", "accel_core", "run", "--nproc-per-node", "2", "train.py", *words]
    done = run_python(command, clean_environment(DS_ACCELERATOR="cpu"), cwd=tmp_path)
    lines = done.succeeded().stderr.splitlines()
    said = [line for line in lines if line.startswith("accel: 2 ranks ran this")]
    assert len(said) == is_said


#: It ends the launcher by a signal that nobody can handle.
KILLING = """
import os, signal, sys, time
from pathlib import Path
Path(sys.argv[1]).write_text(str(os.getpid()))
os.kill(os.getppid(), signal.SIGKILL)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux kills the rank")
def test_a_rank_does_not_outlive_a_launcher_that_was_killed(tmp_path):
    (tmp_path / "kill.py").write_text(KILLING)
    options = ["-m", "accel_core", "run", "--nproc-per-node", "1", "kill.py", "pid"]
    done = run_python(options, clean_environment(DS_ACCELERATOR="cpu"), cwd=tmp_path)
    assert done.returncode == -signal.SIGKILL
    rank = int((tmp_path / "pid").read_text())
    end = time.monotonic() + 20
    while is_running(rank):
        assert time.monotonic() < end
        time.sleep(0.05)


def is_running(pid):
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
    return "State:\tZ" not in status


def test_a_port_in_use_is_named_with_another(tmp_path):
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        options = ["--nproc-per-node", "1", "--master-port", str(port)]
        _, done = launch(tmp_path, *options, "tell.py")
    assert done.returncode == 1
    assert f"127.0.0.1:{port}: the port is in use on this host" in done.stderr
    assert f"--master-port {port + 1}" in done.stderr


#: As Ctrl-C does.
STOP = "import os, signal, time\nos.kill(os.getppid(), signal.SIGINT)\ntime.sleep(60)"
NOWHERE = "--nnodes 2 --rdzv-backend c10d --rdzv-conf read_timeout=1 --rdzv-endpoint nowhere.invalid:1"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "--master-port 99999",
            "cannot start the job: The port number of the rendezvous endpoint '127",
        ),
        (
            "--log-dir /proc/none",
            "cannot start the job: [Errno 2] No such file or directory: '/proc/",
        ),
        (
            "--rdzv-backend none",
            "cannot start the job: The rendezvous backend 'none' is not registered",
        ),
        (
            NOWHERE,
            "cannot start the job: DistNetworkError: The client socket has timed out",
        ),
        ("stop.py", "accel run: SIGINT ended the launcher and its ranks"),
    ],
)
def test_what_ends_the_job_is_one_sentence(tmp_path, words, said):
    (tmp_path / "stop.py").write_text(STOP)
    _, done = launch(tmp_path, "--nproc-per-node", "1", *words.split(), "tell.py")
    assert done.returncode == (130 if words == "stop.py" else 1)
    assert said in done.stderr.splitlines()[-1]
