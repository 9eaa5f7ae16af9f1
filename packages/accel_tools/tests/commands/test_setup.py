"""`accel setup`: its command on stdout, its reasons on stderr, what it refuses, and what it runs."""

import functools
import json
import os
import shutil
import subprocess
import sys
import venv

import pytest
from accel_tests.children import executable, run_command, run_python
from accel_tests.computers import Computer
from click.testing import CliRunner

from accel_core import Backend
from accel_core.hardware import bus
from accel_testing import installed
from accel_tools.commands.setup import command
from accel_tools.setup import machines

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="reads /sys and /dev"
)


def run(*words, path=None, given=""):
    """Run it; without uv unless `path` names folders of programs."""
    environ = {**os.environ, "PATH": path or "/usr/bin:/bin", "COLUMNS": "300"}
    command = [sys.executable, "-m", "accel_core", "setup", *words]
    return subprocess.run(
        command,
        env=environ,
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def setup_on(tmp_path, monkeypatch):
    """`setup_on(signs, *words)`: run it in this process on a machine with these files and PCI functions."""

    def run_on(signs, *words):
        bus.pci_devices.cache_clear()
        computer = Computer(tmp_path / "machine")
        for sign in signs:
            computer.sign(sign)
        if NVIDIA_DRIVER in signs:
            computer.write(NVIDIA_DRIVER, "550.54.15")
        here = functools.partial(machines.here, root=computer.path)
        monkeypatch.setattr("accel_tools.commands.setup.machines.here", here)
        return CliRunner().invoke(command, words, env={"COLUMNS": "300"})

    return run_on


NVIDIA_DRIVER = "/sys/module/nvidia/version"
H100 = (NVIDIA_DRIVER, "10de:2330 030200")
GAUDI = ("1da3:1020 120000",)


def test_the_command_is_all_of_stdout(setup_on):
    done = setup_on(H100, "--format", "pip")
    assert done.exit_code == 0
    index = "https://download.pytorch.org/whl/cu129"
    assert done.stdout.startswith(f"pip install torch --index-url {index}")
    assert done.stdout.count("\n") == 1


def test_the_reasons_are_on_stderr(setup_on):
    shown = setup_on(H100, "--format", "pip").stderr
    seen = "NVIDIA GPU (PCI 10de:2330 at 0000:81:00.0); NVIDIA driver 550.54.15"
    assert f"Detected: {seen}" in shown
    assert "PyTorch's build cu129 runs on NVIDIA driver 550.54.15" in shown
    assert "a table of " in shown


def test_with_uv_the_choice_is_uvs_and_is_named(setup_on):
    done = setup_on(H100, "--format", "uv")
    assert done.stdout.startswith("uv pip install torch ")
    assert done.stdout.endswith(" --torch-backend=auto\n")
    why = "uv chooses PyTorch's build for NVIDIA driver 550.54.15  uv\n"
    assert why in done.stderr


def test_without_a_command_stdout_is_empty_and_the_status_1(setup_on):
    done = setup_on(GAUDI)
    assert done.exit_code == 1
    assert done.stdout == ""
    unknown = "Unknown: no public table lists the packages for the Intel Gaudi. See"
    assert unknown in done.stderr


def test_json_has_everything(setup_on):
    document = json.loads(setup_on(H100, "--json", "--format", "dockerfile").stdout)
    assert document["schema"] == 1
    assert document["machine"]["nvidia_driver"] == "550.54.15"
    assert document["torch_backend"] == "cu129"
    assert document["backend"] == "cuda"
    assert "RUN pip install --no-cache-dir torch" in document["command"]
    parts = [part["what"] for part in document["parts"]]
    assert parts == ["torch", "accel-core", "accel-cuda"]
    assert document["given"] == []


BAD = [
    (["--yes"], 2, "--yes needs --run."),
    (["--run", "--json"], 2, "leave out --json"),
    (["--run", "--python", "3.12"], 2, "leave out --python"),
    (["--run", "--format", "conda"], 2, "--run needs --format pip or uv"),
    (
        ["--torch", "newest"],
        2,
        "'newest' is not a version; expected a version such as 2.9.1.",
    ),
    (
        ["cuda", "--driver", "new"],
        2,
        "'new' is not a version; expected a version such as 570.86.",
    ),
    (
        ["cuda", "--driver", "12.8"],
        2,
        "is not a version of NVIDIA's driver; expected a version such as",
    ),
    (["cuda", "--driver", "12.8"], 2, "Did you mean --toolkit 12.8?"),
    (["cuda", "--toolkit", "570.86"], 2, "Did you mean --driver 570.86?"),
    (
        ["cuda", "--toolkit", "8.3.RC1"],
        2,
        "'8.3.RC1' is not a version of CUDA; expected a version such as",
    ),
    (["npu", "--toolkit", "new"], 2, "'new' is not a version"),
    (["npu", "--driver", "570.86"], 2, "it has no effect on npu"),
    (
        ["tpu", "--toolkit", "1.0"],
        2,
        "The option applies to these toolkits: CUDA (cuda), ROCm (rocm), CANN (npu).",
    ),
    (["--driver", "570.86"], 2, "accel setup cuda --driver 570.86"),
    (["--toolkit", "8.5.0"], 2, "accel setup NAME --toolkit 8.5.0"),
    (["cdua"], 2, "Did you mean 'cuda'?"),
    (["nvidia"], 2, "Did you mean 'cuda'?"),
    (["AMD"], 2, "Did you mean 'rocm'?"),
    (["Ascend"], 2, "Did you mean 'npu'?"),
    (["gpu"], 2, "unknown NAME 'gpu'; expected one of cpu, cuda,"),
]


@pytest.mark.parametrize(("words", "status", "why"), BAD)
def test_bad_input_is_refused_with_what_was_expected(words, status, why):
    done = CliRunner().invoke(command, words, env={"COLUMNS": "300"})
    assert done.exit_code == status
    assert done.stdout == ""
    assert why in done.stderr
    assert isinstance(done.exception, SystemExit)


#: What is named, what is shown of it, the name of PyTorch's index, and our plugin. The rows for each backend
#: are in test_plan.py.
GIVEN = [
    (
        ("cuda", "--driver", "570.86"),
        "NVIDIA GPU, NVIDIA driver 570.86",
        "cu129",
        "accel-cuda",
    ),
    (("xpu",), "Intel discrete GPU", "xpu", "accel-xpu"),
]


@pytest.mark.parametrize(("words", "given", "index", "plugin"), GIVEN)
def test_what_is_named_is_planned_for_without_its_device(
    setup_on, words, given, index, plugin
):
    form = ("--format", "requirements")
    document = json.loads(setup_on((), *words, *form, "--json").stdout)
    assert ", ".join(document["given"]) == given
    assert document["unknown"] == ""
    address = f"--index-url https://download.pytorch.org/whl/{index}"
    assert document["command"].startswith(f"{address}\ntorch\n")
    assert document["packages"] == ["accel-core", plugin]


def test_what_is_named_and_not_found_here_is_shown(setup_on):
    shown = setup_on((), "cuda", "--driver", "570.86", "--format", "pip").stderr
    assert "Detected: no accelerator; linux on x86_64" in shown
    assert "Assumed (not detected): NVIDIA GPU, NVIDIA driver 570.86\n" in shown


FAKE_UV = """
import sys
print("uv was given", sys.argv[1:])
sys.exit(int("torch==9.9.9" in sys.argv))
"""


@pytest.fixture
def uv(tmp_path):
    """A PATH whose uv installs nothing, and says what it was given."""
    executable(tmp_path / "bin/uv", FAKE_UV, by=sys.executable)
    return f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin"


#: For Apple's GPU no index of PyTorch's own is asked.
RUN = ("mps", "--run")


def test_a_command_that_the_user_declines_is_not_run(uv):
    done = run(*RUN, path=uv, given="n\n")
    assert "uv was given" not in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("options", "typed"),
    [([], "y\n"), (["--yes"], "")],
    ids=["typed", "option"],
)
def test_a_command_that_the_user_allows_runs_on_this_python(uv, options, typed):
    done = run(*RUN, *options, path=uv, given=typed)
    assert done.returncode == 0, done.stderr
    assert f"'--python', '{sys.executable}'" in done.stderr
    assert "Done. Next step: accel list" in done.stderr


def test_a_command_that_fails_is_named(uv):
    done = run("mps", "--run", "--yes", "--torch", "9.9.9", path=uv)
    assert done.returncode == 1
    assert "Error: uv pip install torch==9.9.9" in done.stderr
    assert done.stderr.rstrip().endswith("exited with status 1")


def test_no_network_is_said_before_anything_runs(uv, monkeypatch):
    """Through a proxy that refuses every connection."""
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    done = run("cpu", "--run", "--yes", path=uv)
    assert done.returncode == 1
    assert "uv was given" not in done.stderr
    assert (
        "the command was not run: https://download.pytorch.org/whl/cpu/torch/ cannot be reached"
        in done.stderr
    )


@pytest.mark.parametrize(
    ("python", "said"),
    [
        (
            "sysconfig.get_path = lambda name: '.'; sys.prefix = sys.base_prefix",
            "(PEP 668). Next step: python3 -m venv",
        ),
        (
            "struct.calcsize = {'P': 4}.get",
            "this Python is 32-bit, but PyTorch has wheels only for 64-bit",
        ),
    ],
)
def test_a_python_that_cannot_be_installed_in_is_named(tmp_path, python, said):
    """On a Python that says so: the marker of PEP 668 lies in its standard library."""
    code = (
        "import struct, sys, sysconfig; from accel_tools.setup import environment;"
        f"{python}; print(*environment.find_installer_problems('pip'))"
    )
    (tmp_path / "EXTERNALLY-MANAGED").write_text("")
    assert said in run_python(["-c", code], os.environ, cwd=tmp_path).stdout


VENV = "python3 -m venv .venv && . .venv/bin/activate"
PIP = "import sys; print('pip was given', sys.argv[1:])"


def test_an_environment_that_may_not_be_written_is_left_alone(tmp_path):
    """Root gives up its right to write everywhere."""
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv/bin/python"
    (site,) = (tmp_path / "venv/lib").glob("python*/site-packages")
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip/__main__.py").write_text(PIP)
    without_rights = (
        ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
    )
    if without_rights and shutil.which("setpriv") is None:
        pytest.skip("root writes everywhere, and setpriv is missing")
    environ = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
        "COLUMNS": "300",
    }

    def run_here():
        words = [
            python,
            "-m",
            "accel_core",
            "setup",
            "mps",
            "--format",
            "pip",
            "--run",
            "--yes",
        ]
        return run_command([*without_rights, *words], environ, timeout=60)

    site.chmod(0o555)
    refused = run_here()
    site.chmod(0o755)
    assert refused.returncode == 1
    assert refused.stderr.rstrip().endswith(
        f"Error: {site} is not writable. Next step: {VENV}"
    )
    assert "pip was given" not in refused.stdout + refused.stderr
    allowed = run_here()
    assert allowed.returncode == 0, allowed.stderr
    assert "pip was given ['install'" in allowed.stderr


def test_a_plugin_without_a_table_is_quoted():
    named = {"name": "acme", "device_type": "acme", "vendor_import": "acme_torch"}
    acme = Backend(**named, priority=300, install_hint="pip install acme")
    with installed(acme):
        done = CliRunner().invoke(command, ["acme"], env={"COLUMNS": "300"})
    assert done.exit_code == 1
    assert done.stdout == ""
    assert "Unknown: the plugin for acme does not list the packages" in done.stderr
    assert "Note: The plugin's instructions: pip install acme" in done.stderr
