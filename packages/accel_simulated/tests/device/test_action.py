"""The GitHub action: its steps, run as a runner does, by bash and with files for what they hand on."""

import os
import re
import sys
from pathlib import Path

import pytest
from accel_tests.children import executable, run_command, without

yaml = pytest.importorskip("yaml")

ACTION = Path(__file__).parents[4] / ".github/actions/simulate/action.yml"

pytestmark = pytest.mark.nightly(
    reason="installs and compiles, as the action does in a job"
)


def _run(folder, python, devices):
    """The output of each step until one fails, and the variables that later steps would have."""
    written = {name: folder / name for name in ("GITHUB_ENV", "GITHUB_OUTPUT")}
    for file in written.values():
        file.write_text("")
    given = {"python": python, "devices": devices, "requirement": ""}
    said = []
    for step in yaml.safe_load(ACTION.read_text())["runs"]["steps"]:
        if "run" not in step:
            continue
        asks = {
            name: re.fullmatch(r"\$\{\{ inputs\.(\w+) }}", value)
            for name, value in step["env"].items()
        }
        own = {name: given[found[1]] for name, found in asks.items() if found}
        variables = {
            **without("ACCEL_"),
            **{name: str(file) for name, file in written.items()},
            **own,
        }
        command = [
            "bash",
            "--noprofile",
            "--norc",
            "-eo",
            "pipefail",
            "-c",
            step["run"],
        ]
        done = run_command(command, variables)
        said.append(done.stdout + done.stderr)
        if done.returncode:
            break
    return said, dict(
        line.split("=", 1) for line in written["GITHUB_ENV"].read_text().splitlines()
    )


def test_one_device_is_for_every_later_step_and_several_are_for_who_asks(tmp_path):
    said, variables = _run(tmp_path, sys.executable, "acme:3")
    assert len(said) == 2, said
    assert "simdev_privateuse1-" in said[1]
    assert variables["ACCEL_SIMULATE"] == "acme:3"
    _, variables = _run(tmp_path, sys.executable, "acme plain:1")
    assert list(variables) == ["ACCEL_CACHE"]


def test_without_torch_it_ends_and_says_what_to_install(tmp_path):
    bare = executable(
        tmp_path / "python", f'exec "{os.path.realpath(sys.executable)}" -I -S "$@"'
    )
    said, variables = _run(tmp_path, str(bare), "acme")
    assert [line[:31] for line in said] == ["::error::torch is not installed"]
    assert "pip install torch --index-url" in said[0]
    assert variables == {}
