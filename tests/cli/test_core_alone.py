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
    (info / "METADATA").write_text(
        f"Name: accel-core\nVersion: {accel_core.__version__}\n", encoding="utf-8"
    )
    environ = {
        **without("ACCEL_", "DS_", "PYTHON"),
        "PYTHONPATH": str(site),
        "COLUMNS": "200",
    }

    def accel(*arguments):
        return run_command(
            [sys.executable, "-S", "-c", MAIN, *arguments],
            environ,
            cwd=site,
            timeout=60,
        )

    return accel


def places(distribution):
    """The folders to install for it: pip would look in a registry for what it needs of ours."""
    needed = {
        "accel-tools": ["accel_train"],
        "accel-testing": ["accel_train", "accel_tools"],
    }
    folders = [*needed.get(distribution, []), distribution.replace("-", "_")]
    return " ".join(place(f"packages/{folder}") for folder in folders)


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
def test_a_command_of_another_distribution(
    core_alone, arguments, command, distribution
):
    done = core_alone(*arguments.split())
    source = places(distribution)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.partition("\n\n")[2] == (  # behind the usage, which click words
        f"Error: accel {command} is a command of {distribution}, which is not installed. "
        f"Next step: pip install {source}\n"
    )


def test_the_help_says_where_the_other_commands_are(core_alone):
    help_text = " ".join(core_alone("--help").stdout.split())
    for distribution, commands in (
        ("accel-tools", "bench, declarations, doctor, info, python, setup"),
        ("accel-train", "deepspeed, env, frameworks, ops, run"),
        ("accel-testing", "new, simulate, try, verify"),
    ):
        assert f"pip install {places(distribution)} {commands}" in help_text


def test_accel_setup_is_a_command_that_can_be_run(core_alone):
    setup = f"pip install {places('accel-tools')} && accel setup"
    document = json.loads(core_alone("list", "--json").stdout)
    hints = {row["name"]: row["hint"] for row in document["backends"]}
    assert hints == {"generic": setup, "cpu": f"{setup} cpu"}
    lines = core_alone("list").stdout.splitlines()
    assert (
        f"torch is not installed, so no backend can be used. Next step: {setup}"
        in lines
    )


def test_a_pinned_backend_of_a_plugin(core_alone):
    done = core_alone("why", "npu")
    assert done.stderr == (
        "Error: accel why npu: no installed distribution declares npu. Installed: generic, cpu. "
        f"Next step: pip install {place('plugins/accel_npu')}.\n"
    )


def test_the_guide_is_a_file_of_the_checkout(core_alone):
    last = core_alone("why").stdout.splitlines()[-1]
    assert f"{CHECKOUT}/docs/howto/not-found.md" in last
    assert (CHECKOUT / "docs/howto/not-found.md").is_file()
