"""The built wheels, installed by pip into clean virtual environments, as users install them.

The session `wheels` builds them and says where they are; without it these tests have nothing to test.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

WHEELS = os.environ.get("ACCEL_WHEELS", "")
TORCH_PATHS = os.environ.get("ACCEL_TORCH_PATHS", "")

pytestmark = [
    pytest.mark.wheel,
    pytest.mark.skipif(
        not WHEELS,
        reason="ACCEL_WHEELS names no folder of built wheels: run `./dev wheels`",
    ),
]


def wheel(distribution):
    """The one wheel of a distribution."""
    (found,) = Path(WHEELS).glob(f"{distribution}-*.whl")
    return found


class Environment:
    """A clean virtual environment, and what is run in it."""

    def __init__(self, home, python=sys.executable):
        subprocess.run([python, "-m", "venv", str(home)], check=True)
        self.bin = home / ("Scripts" if os.name == "nt" else "bin")
        self.site = Path(
            self.python("import sysconfig; print(sysconfig.get_path('purelib'))")
        )

    def pip(self, *arguments):
        pip = [self.bin / "python", "-m", "pip", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, *arguments], check=True)

    def install(self, *requirements):
        """From the built wheels where they are ours, and else from the index."""
        self.pip("install", "--find-links", WHEELS, *requirements)

    def run(self, *command, cwd=None, **environ):
        clean = {
            k: v
            for k, v in os.environ.items()
            if k != "DS_ACCELERATOR" and not k.startswith(("ACCEL_", "PYTHON"))
        }
        return subprocess.run(
            [self.bin / command[0], *command[1:]],
            capture_output=True,
            text=True,
            env={**clean, **environ},
            check=False,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
        )

    def python(self, code, **environ):
        done = self.run("python", "-c", code, **environ)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def listed(self):
        """What `accel list --json` says, by name; of several declarations the first."""
        done = self.run("accel", "list", "--json")
        assert done.stderr == ""
        first = {}
        for row in json.loads(done.stdout)["backends"]:
            first.setdefault(row["name"], row)
        return first

    def show_torch(self):
        """Let this environment see the torch that the session has, and nothing of ours."""
        lines = [
            f"import site; site.addsitedir({path!r})"
            for path in TORCH_PATHS.split(os.pathsep)
        ]
        (self.site / "torch_home.pth").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """An environment with accel-core's wheel and what it depends on."""
    made = Environment(tmp_path_factory.mktemp("wheels") / "env")
    made.pip("install", str(wheel("accel_core")))
    return made


#: What lies beside a package, in site-packages: Python reads it at its start.
BESIDE = {
    "accel_simulated": ("accel_simulated.pth",),
    "accel_train": ("accel_train_startup",),
}
ROOT = Path(__file__).parents[2]
PACKAGES = [path.name for path in sorted((ROOT / "packages").iterdir())]
PLUGINS = [path.name for path in sorted((ROOT / "plugins").iterdir())]
#: What a wheel must hold beside modules.
DATA = {
    "accel_core": ("__init__.pyi",),
    "accel_tools": ("doctor/schema.json",),
    "accel_testing": ("template/copier.yml", "template/project/pyproject.toml.jinja"),
}


@pytest.mark.parametrize("distribution", ["accel_core", *PACKAGES, *PLUGINS])
def test_a_wheel_holds_its_package_its_types_and_its_licence_only(distribution):
    names = zipfile.ZipFile(wheel(distribution)).namelist()
    tops = {name.partition("/")[0] for name in names}
    expected = {distribution, *BESIDE.get(distribution, ())}
    assert {top for top in tops if not top.endswith(".dist-info")} == expected
    assert {
        f"{distribution}/{file}" for file in ("py.typed", *DATA.get(distribution, ()))
    } <= set(names)
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    # Tests that others run or write are accel-testing's.
    assert [
        n for n in names if "test" in n and "accel_testing" not in n.partition("/")[0]
    ] == []


def test_core_alone_lists_its_own_backends_and_says_that_torch_is_missing(environment):
    rows = environment.listed()
    assert sorted(rows) == ["cpu", "generic"]
    assert rows["cpu"]["status"] == "not_installed"
    assert "torch is not installed" in str(rows["cpu"]["reason"])
    assert rows["cpu"]["hint"].endswith("accel setup cpu")


def test_the_core_pulls_in_three_small_packages_and_nothing_into_others(environment):
    code = """
import importlib.metadata as metadata
print(*sorted(d.name for d in metadata.distributions()), sep=",")
print(*sorted({e.group for e in metadata.distribution("accel-core").entry_points}), sep=",")
"""
    installed, groups = environment.python(code).splitlines()
    needed = {"accel-core", "click", "packaging", "pluggy"}
    assert set(installed.split(",")) - {"pip", "setuptools", "wheel"} == needed
    assert groups == "console_scripts"


def test_core_alone_says_where_the_rest_is(environment):
    assert environment.run("accel", "why").stdout.startswith(
        "No backend can be chosen."
    )
    missing = environment.run("accel", "doctor", "--json")
    assert missing.returncode == 2
    assert missing.stdout == ""
    assert missing.stderr.splitlines()[-1] == (
        "Error: accel doctor is a command of accel-tools, which is not installed. "
        "Next step: pip install accel-tools"
    )
    told = environment.run("accel", "--help").stdout
    assert re.search(
        r"pip install accel-train +deepspeed, env, frameworks, ops, run", told
    )
    assert len(told.splitlines()) <= 40


def pythons():
    """The Pythons that are here, oldest first; those between the oldest and the newest by night."""
    pyenv, found = Path(os.environ.get("PYENV_ROOT", "/nonexistent"), "versions"), {}
    for version in ("3.10", "3.11", "3.12", "3.13"):
        places = sorted(pyenv.glob(f"{version}.*/bin/python{version}"), reverse=True)
        if python := next(iter(places), shutil.which(f"python{version}")):
            found[version] = str(python)
    by_night = pytest.mark.nightly(
        reason="a Python between the oldest and the newest, both tried by day"
    )
    between = list(found)[1:-1]
    return [
        pytest.param(found[v], id=v, marks=by_night if v in between else ())
        for v in found
    ]


@pytest.mark.parametrize("python", pythons())
def test_the_four_work_together_and_say_where_two_releases_meet(python, tmp_path):
    environment = Environment(tmp_path / "env", python)
    environment.install("accel-train")  # which pins the core
    assert (
        environment.python("import accel_train; print(accel_train.forwarded.__name__)")
        == "forwarded"
    )
    assert "ranks" in environment.run("accel", "run", "--help").stdout
    environment.install("accel-core[all]")
    imported = "import sys, accel_train, accel_tools, accel_testing; print('torch' in sys.modules)"
    assert environment.python(imported) == "False"
    told = environment.run("accel", "--help").stdout
    assert "pip install" not in told
    for command in (
        *(
            "bench",
            "deepspeed",
            "doctor",
            "frameworks",
            "env",
            "declarations",
            "info",
            "new",
            "ops",
            "run",
            "simulate",
        ),
        "verify",
    ):
        assert re.search(rf"(?m)^  {command} ", told)
    assert json.loads(environment.run("accel", "doctor", "--json").stdout)["topics"]
    fake = "from accel_testing import fake, installed; installed(fake('acme')); print('made')"
    assert environment.python(fake) == "made"

    # accel-tools of another release beside this core.
    (metadata,) = environment.site.glob("accel_tools-*.dist-info/METADATA")
    text = metadata.read_text("utf-8")
    (version,) = re.findall(r"(?m)^Version: (.*)$", text)
    metadata.write_text(
        text.replace(f"\nVersion: {version}\n", "\nVersion: 9.9\n"), "utf-8"
    )
    metadata.parent.rename(environment.site / "accel_tools-9.9.dist-info")
    asked = environment.run("accel", "doctor")
    assert asked.returncode == 1
    sentence = f"accel-tools 9.9 is installed with accel-core {version}, but both must have the same version"
    assert sentence in " ".join(asked.stdout.split())
    assert f"accel-tools=={version}" in " ".join(asked.stdout.split())
    assert environment.run("accel", "list").returncode == 0


@pytest.mark.skipif(
    not TORCH_PATHS, reason="ACCEL_TORCH_PATHS names no torch: run `./dev wheels`"
)
def test_with_torch_the_core_alone_gives_the_cpu_and_the_plugin_adds_cuda(environment):
    environment.show_torch()
    said = environment.python(
        "import warnings; warnings.simplefilter('error')\n"
        "import accel_core; acc = accel_core.get_accelerator()\n"
        "print(acc.name, acc.FloatTensor([1.0]).device)"
    )
    # A GPU machine without its plugin chooses what torch itself reports.
    assert said.split()[0] in ("cpu", "generic")
    assert said.split()[1].startswith(("cpu", "cuda"))
    environment.pip("install", "--no-deps", str(wheel("accel_cuda")))
    rows = environment.listed()
    assert list(rows) == ["cuda", "generic", "cpu"]
    assert rows["cuda"]["distribution"] == "accel-cuda"
    assert rows["cuda"]["priority"] == 200
    name = "import accel_core; print(accel_core.get_accelerator().name)"
    assert environment.python(name, DS_ACCELERATOR="cpu") == "cpu"
    environment.pip("uninstall", "-y", "accel-cuda")
    assert list(environment.listed()) == ["generic", "cpu"]
    gone = environment.run("python", "-c", name, DS_ACCELERATOR="cuda")
    assert gone.returncode == 1
    assert "pip install accel-cuda" in gone.stderr.splitlines()[-1]


def test_the_plugin_of_the_page_installs_as_written(tmp_path):
    """docs/howto/writing-a-plugin.md: its blocks, in the files that it names, built and installed.

    The third Python block adds a hook to the module. The last two blocks are a table for `accel setup`.
    """
    page = (Path(__file__).parents[2] / "docs/howto/writing-a-plugin.md").read_text(
        "utf-8"
    )
    project, _ = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    module, device, checks, _ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "accel_acme").mkdir()
    (tmp_path / "pyproject.toml").write_text(project)
    (tmp_path / "accel_acme/__init__.py").write_text(f"{module}\n{checks}")
    (tmp_path / "accel_acme/device.py").write_text(device)
    build = [
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(tmp_path / "dist"),
        str(tmp_path),
    ]
    subprocess.run([sys.executable, *build], check=True, capture_output=True)
    environment = Environment(tmp_path / "env")
    (built,) = (tmp_path / "dist").glob("accel_acme-0.1.0-*.whl")
    environment.pip("install", str(wheel("accel_core")), str(built))
    listed = json.loads(environment.run("accel", "list", "--json").stdout)
    (acme,) = [backend for backend in listed["backends"] if backend["name"] == "acme"]
    assert acme["distribution"] == "accel-acme"
    assert acme["status"] == "not_installed"
    assert acme["hint"] == "pip install torch-acme"
    loads = "from accel_core import TorchAccelerator; from accel_acme.device import AcmeAccelerator as A; "
    assert (
        environment.python(f"{loads}print(issubclass(A, TorchAccelerator))") == "True"
    )


def test_every_plugin_declares_itself_as_the_checks_want(environment):
    """`accel verify NAME --level 0` of each as its wheel installs it: an editable one does not tell."""
    environment.install("accel-testing")
    environment.pip("install", "--no-deps", *(str(wheel(name)) for name in PLUGINS))
    try:
        names = environment.listed().keys() - {"cpu", "generic"}
        assert len(names) > len(PLUGINS)  # accel-xpu has two
        found = {}
        for name in sorted(names):
            card = json.loads(
                environment.run(
                    "accel", "verify", name, "--level", "0", "--json"
                ).stdout
            )
            bad = [row for row in card["checks"] if row["outcome"] != "passed"]
            found |= {f"{name}: {row['name']}": row["message"] for row in bad}
        classless = "the declaration names no accelerator class"  # which is no fault
        assert found == {"rbln: declaration.class_can_be_found": classless}
    finally:
        environment.pip("uninstall", "-y", *PLUGINS)


@pytest.mark.skipif(
    not TORCH_PATHS, reason="ACCEL_TORCH_PATHS names no torch: run `./dev wheels`"
)
@pytest.mark.skipif(
    sys.platform != "linux", reason="the simulated device is built on Linux"
)
def test_a_new_plugin_passes_as_it_is_written(environment, tmp_path):
    """`accel new`: what it writes builds, is clean, installs, is found, and passes on a simulated device.

    The last test, as it leaves the environment full.
    """
    environment.install("accel-testing[new]", "accel-simulated")
    names = ["--torch-module", "zpu", "--vendor-import", "zing_sdk.torch"]
    names += ["--author", "O'Zing \\ Sons", "--description", 'Zing "Z" cards – fast']
    written = environment.run(
        "accel", "new", "zing", *names, "--defaults", cwd=tmp_path
    )
    assert written.returncode == 0
    assert written.stderr == ""
    assert [path.name for path in tmp_path.iterdir()] == ["accel-zing"]
    project = tmp_path / "accel-zing"
    sources = [
        path.read_text("utf-8") for path in (project / "src/accel_zing").glob("*.py")
    ]
    assert sum(len(source.splitlines()) for source in sources) < 60
    # Without torch to read, which takes mypy half a minute.
    (environment.site / "torch_home.pth").unlink(missing_ok=True)
    for tool in (
        ["ruff", "check", "--no-cache"],
        ["ruff", "format", "--check", "--no-cache"],
        [
            "mypy",
            "--python-executable",
            str(environment.bin / "python"),
            "--cache-dir",
            os.devnull,
        ],
        ["build", "--no-isolation"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *tool],
            cwd=project,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (tool, done.stdout, done.stderr)
    (built,) = (project / "dist").glob("accel_zing-0.1.0-*.whl")
    environment.pip("install", "--no-deps", str(built))
    environment.show_torch()
    row = environment.listed()["zing"]
    assert row["distribution"] == "accel-zing"
    assert row["status"] == "not_installed"
    assert row["hint"] == "pip install zing-sdk"
    tested = environment.run(
        "pytest", "-k", "test_device_names or test_class", cwd=project
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "2 passed" in tested.stdout
    assert "simulated, no real device: zpu:2" in tested.stdout
    checked = environment.run(
        "accel",
        "simulate",
        "zing:2",
        "--",
        *["accel", "verify", "zing", "--level", "1", "--json"],
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert json.loads(checked.stdout)["simulated"].startswith(
        "zpu:2 by accel-simulated"
    )
