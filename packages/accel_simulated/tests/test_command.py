"""The command `accel simulate`: errors, completion, and a machine without accel-simulated."""

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

import accel_core
from accel_core import packages
from accel_core.cli import accel
from accel_core.hardware import vendors
from accel_testing.commands import simulate


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (
            ["acmee:2", "--", "python"],
            2,
            "the device 'acmee:2': 'acmee' cannot be simulated",
        ),
        (["acme:0", "python"], 2, "'0' is not a valid number of devices"),
        (
            ["acme", "--", "no-such-command", "-x"],
            1,
            "no-such-command: command not found on PATH",
        ),
        (["acme"], 2, "Missing a command, such as: accel simulate acme -- pytest"),
        ([], 2, "Missing a device and a command"),
        (["--build", "acme", "dpu"], 2, "'dpu' cannot be simulated"),
        (
            ["--output", "x", "acme", "true"],
            2,
            "--output requires --build: accel simulate --build",
        ),
        (["acme", "--output", "x"], 1, "--output: command not found"),
    ],
)
def test_errors_of_the_command(words, status, said):
    done = CliRunner().invoke(accel, ["simulate", *words])
    assert done.exit_code == status, done.output
    assert said in done.stderr
    assert done.stdout == ""


def test_a_missing_script_is_suggested_as_a_module(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    for name, module in {
        "pytest": "pytest",
        "torchrun": "torch[.]distributed[.]run",
        "none": "none",
    }.items():
        with pytest.raises(accel_core.LaunchError, match=rf"python -m {module}\.$"):
            simulate._find_program(name)


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["simulate"], ["npu", "neuron"]),
        (["simulate", "--build"], ["npu", "neuron"]),
        (["simulate", "--build", "acme"], ["npu", "neuron"]),
        (["simulate", "acme"], ["n"]),  # the command: a file
    ],
)
def test_completion(words, completed):
    found = ShellComplete(accel, {}, "accel", "_ACCEL_COMPLETE").get_completions(
        words, "n"
    )
    assert [item.value for item in found] == completed


def test_without_accel_simulated_the_command_names_the_installation(monkeypatch):
    everything = packages.entry_points
    monkeypatch.setattr(
        packages,
        "entry_points",
        lambda group: everything(group) if "commands" in group else (),
    )
    done = CliRunner().invoke(accel, ["simulate", "acme", "true"])
    step = vendors.install_command("accel-simulated")
    assert (done.exit_code, done.stderr) == (
        1,
        f"Error: accel simulate needs accel-simulated, which is not installed. Next step: {step}\n",
    )
