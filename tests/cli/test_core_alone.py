"""accel-core alone, installed from a checkout: each message has the command that installs what is missing."""

import json
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from accel_tests.children import run_command, without

import accel_core

CHECKOUT = Path(__file__).resolve().parents[2]
MAIN = "from accel_core.cli import main; main()"


def place(folder):
    """A folder of the checkout, as a command line names it."""
    return shlex.quote(f"{CHECKOUT}/{folder}")


@pytest.fixture(scope="module")
def core_alone(tmp_path_factory):
    """Run `accel` as after `pip install CHECKOUT` in an empty environment."""
    site = tmp_path_factory.mktemp("site")
    for name in ("accel_core", "click", "packaging", "pluggy"):
        shutil.copytree(Path(find_spec(name).origin).parent, site / name)
    info = site / f"accel_core-{accel_core.__version__}.dist-info"
    info.mkdir()
    origin = {"url": CHECKOUT.as_uri(), "dir_info": {}}
    (info / "direct_url.json").write_text(json.dumps(origin), encoding="utf-8")
    (info / "METADATA").write_text(f"Name: accel-core\nVersion: {accel_core.__version__}\n", encoding="utf-8")
    environ = {**without("ACCEL_", "DS_", "PYTHON"), "PYTHONPATH": str(site), "COLUMNS": "200"}

    def accel(*arguments):
        return run_command([sys.executable, "-S", "-c", MAIN, *arguments], environ, cwd=site, timeout=60)

    return accel


@pytest.mark.parametrize(
    ("arguments", "command", "distribution"),
    [
        ("setup", "setup", "accel-tools"),
        ("setup cuda --run", "setup", "accel-tools"),
        ("help setup", "setup", "accel-tools"),
        ("doctor", "doctor", "accel-tools"),
        ("run x.py", "run", "accel-train"),
        ("verify", "verify", "accel-testing"),
    ],
)
def test_a_command_of_another_distribution(core_alone, arguments, command, distribution):
    done = core_alone(*arguments.split())
    source = place(f"packages/{distribution.replace('-', '_')}")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.partition("\n\n")[2] == (  # behind the usage, which click words
        f"Error: accel {command} comes with {distribution}, which is not installed: pip install {source}\n"
    )


def test_the_help_says_where_the_other_commands_are(core_alone):
    help_text = " ".join(core_alone("--help").stdout.split())
    for folder, commands in (
        ("packages/accel_tools", "bench, doctor, facts, info, setup"),
        ("packages/accel_train", "deepspeed, doors, env, ops, run"),
        ("packages/accel_testing", "new, simulate, try, verify"),
    ):
        assert f"pip install {place(folder)} {commands}" in help_text


def test_accel_setup_is_a_command_that_can_be_run(core_alone):
    setup = f"pip install {place('packages/accel_tools')} && accel setup"
    document = json.loads(core_alone("list", "--json").stdout)
    hints = {row["name"]: row["hint"] for row in document["backends"]}
    assert hints == {"generic": setup, "cpu": f"{setup} cpu"}
    last = core_alone("list").stdout.splitlines()[-1]
    assert last == f"torch is not installed, so no backend can be used: {setup}"


def test_a_pinned_backend_of_a_plugin(core_alone):
    done = core_alone("why", "npu")
    assert done.stderr == (
        "Error: accel why npu: no installed distribution declares npu. Installed: generic, cpu. "
        f"Next step: pip install {place('plugins/accel_npu')}.\n"
    )
