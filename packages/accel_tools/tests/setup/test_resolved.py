"""The printed commands for Ascend, TPU and Rebellions: uv resolves each from the registry, wheels alone.

Where PyTorch's index cannot be reached, empty wheels with torch's names stand for it: then only the vendor's
packages are the real ones, and PyPI says which releases and Pythons torch has.
"""

import json
import shlex
import shutil
import subprocess
import urllib.request

import pytest
from accel_tests.archives import of_wheel
from packaging.specifiers import SpecifierSet
from packaging.utils import parse_wheel_filename

from accel_tools.setup import builds, environment
from accel_tools.setup.formats import format_plan
from accel_tools.setup.plan import Plan
from accel_tools.setup.recipes import read_recipes

pytestmark = [
    pytest.mark.nightly(reason="asks PyPI for each row of the table"),
    pytest.mark.skipif(shutil.which("uv") is None, reason="uv resolves the commands"),
]
CANN = "/usr/local/Ascend/cann/x86_64-linux/ascend_toolkit_install.info"
#: Backend, toolkit, Python, architecture: for each CANN the newest row, with the newest Python that it has.
CASES = [
    ("npu", "9.1.1", "3.13", "x86_64"),
    ("npu", "9.1.1", "3.13", "aarch64"),
    ("npu", "9.0.0", "3.13", "aarch64"),
    ("npu", "8.5.0", "3.12", "aarch64"),
    ("npu", "8.3.rc1", "3.11", "aarch64"),
    ("npu", "8.2.rc1", "3.11", "x86_64"),
    ("npu", "8.2.rc1", "3.11", "aarch64"),
    ("rbln", "", "3.13", "x86_64"),
    ("tpu", "", "3.13", "x86_64"),
]
PYTHONS = ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15"]


def test_a_row_has_the_pythons_of_its_wheels():
    """No more than the registry has, of torch too; the vendor's table may name fewer."""
    of_torch = wheels_of("torch")
    for name in ("npu", "rbln", "tpu"):
        found = wheels_of(f"torch-{name}")
        for row in read_recipes()[0][name].rows:
            version = row.packages[0].partition("==")[2]
            claimed = {p for p in PYTHONS if p in SpecifierSet(row.python)}
            assert claimed
            for architecture in row.architectures:
                assert claimed <= found[version, architecture], (row, architecture)
                assert claimed <= of_torch[row.torch, architecture], (row, architecture)


def wheels_of(project):
    """The Pythons for which PyPI has wheels, by version and architecture."""
    accept = {"Accept": "application/vnd.pypi.simple.v1+json"}
    request = urllib.request.Request(
        f"https://pypi.org/simple/{project}/", headers=accept
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        names = [file["filename"] for file in json.load(answer)["files"]]
    found = {}
    for name in names:
        if name.endswith(".whl"):
            _, version, _, tags = parse_wheel_filename(name)
            for tag in tags:
                architecture = (
                    "aarch64" if tag.platform.endswith("aarch64") else "x86_64"
                )
                python = f"{tag.interpreter[2]}.{tag.interpreter[3:]}"
                found.setdefault((str(version), architecture), set()).add(python)
    return found


@pytest.fixture(scope="module")
def torch_builds(tmp_path_factory):
    """Arguments by which uv finds torch's CPU builds."""
    probe = Plan(None, "", "", "", torch_backend="cpu")
    if not environment.why_index_is_unreachable(probe):
        return ["--torch-backend=cpu"]
    folder = tmp_path_factory.mktemp("pytorch")
    for release in {
        row.torch for table in read_recipes()[0].values() for row in table.rows
    }:
        wheel = folder / f"torch-{release}+cpu-py3-none-any.whl"
        wheel.write_bytes(of_wheel("torch", f"{release}+cpu"))
    return ["--find-links", str(folder)]


@pytest.mark.parametrize(("name", "toolkit", "python", "architecture"), CASES)
def test_uv_resolves_the_command(
    planned_for, torch_builds, name, toolkit, python, architecture
):
    files = {CANN: f"version={toolkit}"} if toolkit else {}
    plan = planned_for(
        {"architecture": architecture, "python": python, "files": files}, name
    )
    line = shlex.split(format_plan(plan, "uv"))
    assert line[-1] == "--torch-backend=cpu"
    given = [word for word in line[3:-1] if word != f"accel-{name}"]
    resolved = _compiled(given, python, architecture, torch_builds)
    assert f"{plan.torch}+{builds.CPU}" in resolved
    assert plan.packages[0] in resolved


def _compiled(requirements, python, architecture, torch_builds):
    line = [
        "uv",
        "pip",
        "compile",
        "-",
        "--quiet",
        "--no-annotate",
        "--no-header",
        "--only-binary=:all:",
    ]
    target = [
        "--python-version",
        python,
        "--python-platform",
        f"{architecture}-manylinux_2_35",
    ]
    done = subprocess.run(
        [*line, *target, *torch_builds],
        input="\n".join(requirements),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
