"""Everything that a person or CI runs. `./dev` lists the sessions, `./dev NAME` sets one up and runs it.

The sessions' environments are in `.nox/`, kept from run to run (tools/environments.py).
Anything odd after a branch switch: delete `.nox`.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from pathlib import Path

import nox

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))  # a plain `nox` does not have the noxfile's folder in its path
from environments import (  # noqa: E402
    BACKEND,
    CLEAN,
    PROJECTS,
    PYTEST,
    WINDOWS,
    changed,
    differing,
    for_deepspeed,
    in_own_folder,
    interpreters,
    measured,
    prepare,
    require,
    shared,
    torch_home,
)
from touched import UNTIL, near_tests  # noqa: E402

nox.needs_version = ">=2025.2.9"
nox.options.reuse_venv = "yes"
nox.options.default_venv_backend = BACKEND
nox.options.download_python = "never"
nox.options.sessions = ["test"]

WHEELS = ROOT / "dist"

# Byte code is kept on disk, as users have it: the tests start Python thousands of times.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Sessions that need the same packages, torch among them, use one environment.
WITH_TORCH = ("test", "example", "docs", "opinfo")
ONE = (
    "tests touched core train tools testing plugins docs faults fuzz gpu simulated opinfo cards mutants "
    "ipex_real multinode soak"
)
shared({**dict.fromkeys(ONE.split(), "tests"), "frameworks": "trainers"})

TRAIN = "packages/accel_train/src/accel_train"
INTEGRATIONS = f"{TRAIN}/deepspeed/*,{TRAIN}/lightning/*,{TRAIN}/accelerate.py,{TRAIN}/transformers.py"
STAGING = f"{TRAIN}/staged"
KIT = "packages/accel_testing/src/accel_testing/conformance"
CHECKS = f"{KIT}/[cfir]*/*"  # compute, frameworks, interface, ranks: on devices
NAMED = "tests/truth/test_outside.py"  # what we name of others' packages, read where those are installed
ATHERIS = sys.platform == "linux" and platform.machine() == "x86_64" and sys.version_info >= (3, 11)
# One more than cores, as many tests wait for processes that they have started.
WORKERS = str(min(4, 1 + (os.cpu_count() or 1)))
# Needs no built wheels; on several cores. Devices and real vendors have sessions: a process each, minutes.
# Fuzzing and load take their time by night.
OF_OTHERS = [
    "packages/accel_simulated/tests/device",
    "packages/accel_train/tests/deepspeed",
    "packages/accel_train/tests/multinode",
    "packages/accel_train/tests/recipes",
    "packages/accel_train/tests/trainers",
    "plugins/accel_npu/tests/real",
    "plugins/accel_tpu/tests/real",
    *(f"tests/{name}" for name in ("site", "fuzz", "soak")),
]
APART = [f"--ignore={folder}" for folder in OF_OTHERS]
ORDINARY = "not wheel and not gpu and not faults and not nightly"
BY_DAY = ["-m", "not nightly"]
SEVERAL = ["-n", WORKERS, "--dist", "worksteal"]
# The sessions of the distributions, with the folders that each is about.
PARTS = {
    "core": ["tests"],
    "train": ["packages/accel_train/tests"],
    "tools": ["packages/accel_tools/tests"],
    "testing": ["packages/accel_testing/tests"],
    "plugins": ["plugins", "packages/accel_simulated/tests"],
}
FOLDERS = [folder for folders in PARTS.values() for folder in folders]
EVERYTHING = [*SEVERAL, "-m", ORDINARY, *APART, *FOLDERS]
# What needs no torch and whose children nobody measures runs without torch alone.
TORCHFREE = ["--ignore=tests/faults"]
# What may differ without torch, or from one Python to another. The rest is the same code as in session tests,
# which runs on Linux alone.
WITHOUT = [
    *(f"tests/{name}" for name in ("detection", "machine", "current", "internal", "faults")),
    "plugins",
    "tests/cli/test_list.py",
    "packages/accel_testing/tests/commands/test_new.py",
    *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/test_*.py")),
]  # fmt: skip
FEW = [*SEVERAL, "-m", f"{ORDINARY} and not slow", *WITHOUT]

AFTER_THE_DEMO = """
What next?  {activate} puts `accel` and this Python on your path. Then

  accel why                  why this one was chosen, and why not each other
  accel info                 what it is and can do
  DS_ACCELERATOR=cpu python examples/train_digits.py       the same on a backend that you name

README.md, "Use", has the four lines for a program of your own. `./dev test` runs the tests.
"""

ABOUT_THE_TESTS = """
Sessions: {names}.
The first time takes longer: it fills environments in .nox/. `./dev test --all` runs all of these.
Left out, as each has an environment of its own: {apart}.
`.github/workflows` runs those too, `.ci/run` most, `./dev NAME` one. For a CUDA or ROCm device: `./dev gpu`.
"""


# ---------------------------------------------------------------------------- for users


@nox.session
def demo(session: nox.Session) -> None:
    """List the backends, and train a small network on the one that is chosen."""
    prepare(session, "example", torch=True)
    print("\n1/2  Which backends are there, and which one is chosen?\n     $ accel list\n", flush=True)
    session.run("accel", "list", log=False)
    train = "python examples/train_digits.py"
    print(f"\n2/2  Train on it: 1,797 real images of digits\n     $ {train}\n", flush=True)
    said = {"PYTHONWARNINGS": "ignore:No accelerator is usable:UserWarning"}  # by the list, just now
    session.run("python", "examples/train_digits.py", *session.posargs, env=said, log=False)
    script = os.path.relpath(Path(session.bin) / "activate")
    print(AFTER_THE_DEMO.format(activate=f"`{script}`" if WINDOWS else f"`. {script}`"))


@nox.session(venv_backend="none")
def test(session: nox.Session) -> None:
    """Lint, types, the core's tests, and those of what has changed against main; `--all`: everything."""
    oldest = next(iter(interpreters()))
    whole = "--all" in session.posargs
    apart = "site, simulated, npu_real, tpu_real, ipex_real, deepspeed, deepspeed_oldest, trainers, doors, multinode"  # noqa: E501
    parts = [name for name in PARTS if whole or name == "core" or changed(ROOT, folders(name))]
    names = ["lint", "types", *parts]
    if whole:
        names = ["docs", *names, "wheels", f"tests_torchfree({oldest})"]
    print(ABOUT_THE_TESTS.format(names=", ".join(names), apart=apart), flush=True)
    for name in names:
        session.notify(name, [])


@nox.session(venv_backend="none")
def quick(session: nox.Session) -> None:
    """Lint, types, and the tests that your diff against main touches: a minute at most, once installed.

    While you work; `./dev test` before you hand in.
    """
    for name in ("lint", "types", "touched"):
        session.notify(name, [])


def folders(part: str) -> list[str]:
    """Give the folders in which a change is a change of this part."""
    return [folder.removesuffix("/tests") for folder in PARTS[part]]


# ---------------------------------------------------------------------------- tests


def of_part(session: nox.Session, part: str) -> None:
    """Run the tests of one part, with torch."""
    prepare(session, *WITH_TORCH, torch=True)
    require(session, "torch", "sklearn")
    found = session.posargs or [*SEVERAL, "-m", ORDINARY, *APART, *TORCHFREE, *PARTS[part]]
    session.run("python", *PYTEST, *found, env=CLEAN)


@nox.session(venv_backend="shared")
def touched(session: nox.Session) -> None:
    """Run the tests that your diff against main touches, the nearest first, for 40 seconds at most.

    tools/touched.py says which those are. A test for which no time is left is skipped, and counted as such.
    """
    prepare(session, *WITH_TORCH, torch=True)
    require(session, "torch", "sklearn")
    files = differing(ROOT)
    if files is None:
        session.error("git knows no branch main to compare with: git fetch origin main:main")
    found = near_tests(ROOT, files, OF_OTHERS)
    if not found:
        session.log("no test is near what differs from main: ./dev core runs all of accel-core's")
        return
    session.log(f"nearest first: {', '.join(found[:4])}{f' and {len(found) - 4} more' if found[4:] else ''}")
    # One test at a time to each worker: so they run in that order.
    several = ["-n", WORKERS, "--dist", "load", "--maxschedchunk", "1", "-q", "-p", "touched", "-m", ORDINARY]
    env = {**CLEAN, "PYTHONPATH": str(ROOT / "tools"), UNTIL: str(time.time() + 40)}
    session.run("python", *PYTEST, *several, *session.posargs, *found, env=env)


@nox.session(venv_backend="shared")
def core(session: nox.Session) -> None:
    """Run the tests of accel-core: four minutes."""
    of_part(session, "core")


@nox.session(venv_backend="shared")
def train(session: nox.Session) -> None:
    """Run the tests of accel-train that need no framework."""
    of_part(session, "train")


@nox.session(venv_backend="shared")
def tools(session: nox.Session) -> None:
    """Run the tests of accel-tools."""
    of_part(session, "tools")


@nox.session(venv_backend="shared")
def testing(session: nox.Session) -> None:
    """Run the tests of accel-testing."""
    of_part(session, "testing")


@nox.session(venv_backend="shared")
def plugins(session: nox.Session) -> None:
    """Run the tests of the plugins, and those of accel-simulated that need no compiler."""
    of_part(session, "plugins")


@nox.session(venv_backend="shared")
def tests(session: nox.Session) -> None:
    """Run the tests of all distributions at once (`DEV_COVERAGE=1`: with branch coverage)."""
    prepare(session, *WITH_TORCH, torch=True)
    require(session, "torch", "sklearn")
    if session.posargs or WINDOWS:  # coverage cannot follow a fork on Windows
        session.run("python", *PYTEST, *(session.posargs or EVERYTHING), env=CLEAN)
        return
    # The integrations are measured where their frameworks are: sessions deepspeed and trainers; the staged
    # process group where devices are: session simulated.
    measured(session, [*EVERYTHING, *TORCHFREE], CLEAN, f"--omit={INTEGRATIONS},{STAGING}/*,{CHECKS}")


@nox.session
@nox.parametrize("python", [nox.param(path, id=version) for version, path in interpreters().items()])
def tests_torchfree(session: nox.Session) -> None:
    """Run pytest without torch, on the oldest and on the newest Python that are here."""
    prepare(session, "test")
    found = FEW if sys.platform == "linux" else EVERYTHING
    session.run("python", *PYTEST, *(session.posargs or found), env=CLEAN)


@nox.session(venv_backend="shared")
def fuzz(session: nox.Session) -> None:
    """Feed what people, plugins and machines may write to what reads it: 15 minutes, or `--seconds N`."""
    prepare(session, *WITH_TORCH, torch=True)
    session.run("python", "tools/fuzz.py", WORKERS, *session.posargs, env=CLEAN)
    if ATHERIS and not session.posargs:
        path = str(in_own_folder(session, "atheris", "atheris==3.0.0"))
        session.run("python", "tools/fuzz_bytes.py", env={**CLEAN, "PYTHONPATH": path})


@nox.session(venv_backend="shared")
def faults(session: nox.Session) -> None:
    """Run the fault matrix: thousands of cells in half an hour; records them for their page."""
    prepare(session, *WITH_TORCH, torch=True)
    require(session, "torch")
    several = [*SEVERAL, "-m", "faults", "tests/faults"]
    seen = session.create_tmp()
    shutil.rmtree(seen)
    try:
        env = {**CLEAN, "ACCEL_FAULTS_RECORD": seen}
        session.run("python", *PYTEST, *several, *session.posargs, env=env)
    finally:  # what is not as promised goes onto the page too
        session.run("python", "tools/fault_record.py", seen)


@nox.session(venv_backend="shared")
def soak(session: nox.Session) -> None:
    """Choose under load: 64 processes at once, ten thousand times in one, with little of everything."""
    prepare(session, *WITH_TORCH, torch=True)
    require(session, "torch")
    session.run("python", *PYTEST, "-s", *(session.posargs or ["tests/soak"]), env=CLEAN)


@nox.session(venv_backend="shared")
def gpu(session: nox.Session) -> None:
    """Run the tests that need a real CUDA or ROCm device, with whatever torch is there."""
    prepare(session, *WITH_TORCH, torch=True)
    require(session, "torch", "sklearn")
    session.run("python", *PYTEST, "-m", "gpu", *session.posargs, env=CLEAN)


@nox.session(venv_backend="shared")
def simulated(session: nox.Session) -> None:
    """Run every plugin on its simulated device (needs a C++ compiler; built once and kept).

    With `-m nightly` and its folder: what the simulator itself promises, and the rest of the trainings.
    """
    prepare(session, *WITH_TORCH, torch=True)
    require(session, "torch", "sklearn")
    if session.posargs:
        session.run("python", *PYTEST, *session.posargs, env=CLEAN)
        return
    staged = "packages/accel_simulated/tests/device/test_staged.py"
    session.run(
        "python",
        *PYTEST,
        *SEVERAL,
        *BY_DAY,
        "packages/accel_simulated/tests/device",
        f"--ignore={staged}",
        env=CLEAN,
    )
    # Less than elsewhere: what its threads and the ends of processes pass is not seen.
    measured(session, [*SEVERAL, *BY_DAY, staged], CLEAN, f"--include={STAGING}/*", "--fail-under=85")


@nox.session(venv_backend="shared")
def opinfo(session: nox.Session) -> None:
    """Run torch's databases of operators, modules and optimizers on the simulated device: ten minutes."""
    prepare(session, *WITH_TORCH, torch=True)
    session.run("python", "tools/opinfo.py", *session.posargs, env=CLEAN)


@nox.session
def npu_real(session: nox.Session) -> None:
    """Run the npu plugin on the real torch_npu, over a stand-in for CANN (needs a C compiler)."""
    packages = ("torch-npu==2.13.0", "deepspeed==0.19.8")
    prepare(session, "test", "example", "deepspeed", "npu-real", torch=True, extra=packages)
    require(session, "torch_npu", "torch", "deepspeed", "sklearn")
    # The sessions see torch; whether it loads torch_npu by itself is what some of these tests are about.
    env = {**CLEAN, "TORCH_DEVICE_BACKEND_AUTOLOAD": None}
    found = session.posargs or [*SEVERAL, *BY_DAY, "plugins/accel_npu/tests/real"]
    session.run("python", *PYTEST, *found, env=env)


@nox.session
def tpu_real(session: nox.Session) -> None:
    """Run the tpu plugin on the real TorchTPU, over XLA's library for the CPU: no TPU is needed."""
    packages = ("torch-tpu==0.2.0", "fastatomstruct-xla-cpu==2026.6.23")
    groups = ("test", "example", "opinfo", "deepspeed", "trainers", "tpu-real")
    prepare(session, *groups, torch=True, extra=packages)
    require(session, "torch_tpu", "fastatomstruct_xla_cpu", "torch", "lightning", "transformers", "sklearn")
    # Where Transformers finds DeepSpeed it imports it, and that refuses a DS_ACCELERATOR it does not know.
    home = in_own_folder(session, "of_deepspeed", "--no-build-isolation", "deepspeed==0.19.8")
    env = {**CLEAN, "TORCH_DEVICE_BACKEND_AUTOLOAD": None, "ACCEL_REAL_DEEPSPEED": str(home)}
    found = session.posargs or [*SEVERAL, "plugins/accel_tpu/tests/real"]
    session.run("python", *PYTEST, *found, env=env)


@nox.session(venv_backend="shared")
def cards(session: nox.Session) -> None:
    """Write the score card of every backend here, which the docs tell and session simulated compares."""
    prepare(session, *WITH_TORCH, torch=True)
    session.run("python", "tools/cards.py", *session.posargs, env=CLEAN)


@nox.session(venv_backend="shared")
def mutants(session: nox.Session) -> None:
    """Run every check of the kit on every broken accelerator, a quarter of an hour; records what fails."""
    prepare(session, *WITH_TORCH, torch=True)
    session.run("python", "tools/mutants.py", env=CLEAN)


@nox.session(venv_backend="shared")
def ipex_real(session: nox.Session) -> None:
    """Hold the xpu plugin against the real IPEX 2.8.0, which does not fit this torch."""
    prepare(session, *WITH_TORCH, torch=True)
    # Installed beside torch it would be seen by every other test.
    home = in_own_folder(
        session, "ipex", "intel-extension-for-pytorch==2.8.0", "intel-extension-for-deepspeed"
    )
    env = {**CLEAN, "ACCEL_REAL_IPEX": str(home)}
    session.run("python", *PYTEST, "plugins/accel_xpu", *session.posargs, env=env)


@nox.session
def deepspeed(session: nox.Session) -> None:
    """Train with DeepSpeed on our accelerators: a simulated device nobody has heard of, and others by night.

    With `-m nightly` and its folder: the CPU, a device with less than a GPU, and all of level 4.
    """
    prepare(session, "test", "example", "docs", "deepspeed", torch=True, extra=("deepspeed==0.19.8",))
    require(session, "deepspeed", "torch", "sklearn")
    # DeepSpeed asks every extension of that name that it finds.
    home = in_own_folder(session, "of_intel", "intel-extension-for-deepspeed==0.9.4")
    own = [
        "packages/accel_train/tests/deepspeed",
        "packages/accel_train/tests/ops/test_cpu_adam_deepspeed.py",
        NAMED,
    ]
    env = {**for_deepspeed(session), "ACCEL_REAL_IDEX": str(home)}
    if session.posargs:
        session.run("python", *PYTEST, *session.posargs, env=env)
        return
    measured(session, [*SEVERAL, *BY_DAY, *own], env, f"--include={TRAIN}/deepspeed/*")
    # Afterwards: the tests have compiled what one of them needs.
    pages = (
        "README.md",
        "docs/howto/deepspeed.md",
        "docs/tutorial/deepspeed.md",
        "docs/howto/from-deepspeed.md",
    )
    session.run("python", "tools/run_documents.py", *pages, env=env)


@nox.session
def deepspeed_oldest(session: nox.Session) -> None:
    """Activate and launch the oldest DeepSpeed that is supported."""
    prepare(session, "test", "example", "deepspeed", torch=True, extra=("deepspeed==0.16.0",))
    require(session, "deepspeed", "torch")
    # What depends on its release: its modules, its launcher here and on other hosts.
    names = (
        "two_ranks_on_this_host",
        "other_hosts_get_the_choice_and_the_activation",
        "help_is_the_launchers",
    )
    launch = [f"packages/accel_train/tests/deepspeed/test_launch.py::test_{name}" for name in names]
    found = session.posargs or ["packages/accel_train/tests/deepspeed/test_activate.py", *launch]
    session.run("python", *PYTEST, *SEVERAL, *found, env=for_deepspeed(session))


@nox.session
def trainers(session: nox.Session) -> None:
    """Train with Lightning, Accelerate, Transformers and TRL on our accelerators."""
    prepare(session, "test", "example", "docs", "trainers", torch=True)
    require(session, "lightning", "pytorch_lightning", "accelerate", "torch", "sklearn")
    env = {**CLEAN, "ACCEL_OLD_LIGHTNING": str(in_own_folder(session, "old_lightning", "lightning==2.2.5"))}
    if session.posargs:
        session.run("python", *PYTEST, *session.posargs, env=env)
        return
    pages = ("README.md", "docs/howto/trainers.md")
    session.run("python", "tools/run_documents.py", *pages, env=CLEAN)
    ours = INTEGRATIONS.removeprefix(f"{TRAIN}/deepspeed/*,")
    found = [*SEVERAL, *BY_DAY, "packages/accel_train/tests/trainers", NAMED]
    measured(session, found, env, f"--include={ours}")


@nox.session
def doors(session: nox.Session) -> None:
    """Hold our adapters against released frameworks; by night also train with them on a simulated device."""
    prepare(session, "test", "doors", torch=True)
    require(session, "torch", "ray", "numba")
    # verl wants an older Transformers than the other sessions have.
    verl = ("verl==0.9.1", "tensordict==0.10.0", "torchdata==0.11.0")
    theirs = ("transformers==5.10.4", "tokenizers==0.22.2", "huggingface-hub==1.33.0", "peft==0.21.2")
    # axolotl 0.21 asks for Python 3.12, and uses nothing of it; these are its own pins, but for small ones.
    newer = ["transformers==5.20.1", "tokenizers==0.23.3", "huggingface-hub==1.33.0"]
    axolotl = ["--python-version=3.12", "axolotl==0.21.0", "axolotl-contribs-lgpl==0.0.7", *newer]
    axolotl += ["axolotl-contribs-mit==0.0.6", "peft==0.21.2", "trl==1.14.1", "posthog==6.7.11"]
    axolotl += ["evaluate==0.4.1", "bitsandbytes==0.50.2", "addict", "backoff", "colorama", "distro"]
    axolotl += ["fastcore", "fire", "termcolor", "wandb"]
    # With the newest Lightning that NeMo takes.
    nemo = ["nemo-toolkit==3.0.0", "lightning==2.4.0", "lightning-utilities", "torchmetrics==1.9.0", *newer]
    nemo += ["einops", "onnx", "ml-dtypes", "overrides", "sentencepiece", "strenum", "toml"]
    logger = ("core", "training-telemetry", "pytorch-lightning-integration")
    nemo += [f"nv-one-logger-{name}==2.3.1" for name in logger]
    homes = {
        "axolotl": in_own_folder(session, "of_axolotl", *axolotl),
        "nemo": in_own_folder(session, "of_nemo", *nemo),
        "verl": in_own_folder(session, "of_verl", *verl, *theirs),
        "lmcache": in_own_folder(session, "of_lmcache", "lmcache==0.5.6"),
        "bitsandbytes": in_own_folder(session, "of_bitsandbytes", "bitsandbytes==0.50.2"),
    }
    env = {**CLEAN, **{f"ACCEL_DOOR_{name.upper()}": str(home) for name, home in homes.items()}}
    found = session.posargs or [*SEVERAL, *BY_DAY, "packages/accel_train/tests/doors", NAMED]
    session.run("python", *PYTEST, *found, env=env)


@nox.session
def recipes(session: nox.Session) -> None:
    """Give libraries a device: predict, and train a step, on simulated devices and on the real TorchTPU."""
    libraries = ["diffusers==0.42.1", "kornia==0.9.0", "skorch==1.4.0", "torchmetrics==1.9.0"]
    libraries += ["torch_geometric==2.8.1"]
    tpu = ("torch-tpu==0.2.0", "fastatomstruct-xla-cpu==2026.6.23")
    prepare(session, "test", "example", "recipes", "tpu-real", torch=True, extra=(*libraries, *tpu))
    require(session, "torch", "torch_tpu", "fastatomstruct_xla_cpu", "sklearn")
    require(session, "diffusers", "kornia", "skorch", "torch_geometric", "torchmetrics")
    # The other libraries would import this torchvision, which lacks its C++ beside torch's CPU build.
    vision = ("torchvision==0.28.0", "timm==1.0.31", "open_clip_torch==3.3.0", "ultralytics==8.4.190")
    home = in_own_folder(session, "of_vision", *vision, "easyocr==1.7.2")
    env = {**CLEAN, "TORCH_DEVICE_BACKEND_AUTOLOAD": None, "ACCEL_RECIPES_VISION": str(home)}
    found = session.posargs or [*SEVERAL, "packages/accel_train/tests/recipes"]
    session.run("python", *PYTEST, *found, env=env)


@nox.session(venv_backend="shared")
def frameworks(session: nox.Session) -> None:
    """Run Accelerate's scripts, Trainer and Lightning's demos on simulated devices; records them."""
    prepare(session, "test", "example", "docs", "trainers", torch=True)
    require(session, "lightning", "accelerate", "transformers", "torch")
    # One of Accelerate's scripts needs it; not beside the other packages, which look for it.
    home = in_own_folder(session, "torchdata", "torchdata==0.11.0")
    session.run("python", "tools/framework_runs.py", *session.posargs, env={**CLEAN, "PYTHONPATH": str(home)})


@nox.session(venv_backend="shared")
def multinode(session: nox.Session) -> None:
    """Train on three hosts in network namespaces, and lose one (needs root and iproute2, else skips)."""
    prepare(session, *WITH_TORCH, torch=True)
    require(session, "torch", "sklearn")
    session.run("python", *PYTEST, *(session.posargs or ["packages/accel_train/tests/multinode"]), env=CLEAN)


@nox.session
def wheels(session: nox.Session) -> None:
    """Build every distribution into dist/ and test the wheels in clean environments."""
    prepare(session, "build", "release", "test", "lint", "types", project=False)
    session.run("python", "tools/release.py", "--build")
    # The clean environments see torch through a .pth file, as the sessions do.
    torch_paths = os.pathsep.join(torch_home(session).paths)
    env = {**CLEAN, "ACCEL_WHEELS": str(WHEELS), "ACCEL_TORCH_PATHS": torch_paths}
    # The other tests' conftest.py imports the project, which is not installed here on purpose.
    found = session.posargs or BY_DAY
    session.run("python", *PYTEST, "--confcutdir=tests/wheels", "tests/wheels", *found, env=env)


@nox.session
def release(session: nox.Session) -> None:
    """Build everything into dist/ and check it for a release. Publishes nothing.

    `--dry-run`: with the changelog assembled in a copy; then install each one in an empty environment.
    `--tag`: tag the commit, if nothing blocks a release.
    """
    prepare(session, "build", "release", project=False)
    session.run("python", "tools/release.py", *session.posargs, env=CLEAN)


# ---------------------------------------------------------------------------- checks


@nox.session
def lint(session: nox.Session) -> None:
    """Check style (ruff), the import layers (import-linter) and the English of docstrings and pages."""
    prepare(session, "lint", project=False)
    paths = [str(path / "src") for path in PROJECTS]
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports", "--no-cache", env={"PYTHONPATH": os.pathsep.join(paths)})
    session.run("python", "tools/public_names.py", "--check")
    session.run("python", "tools/metadata.py", "--check")
    session.run("python", "tools/plain_english.py")


@nox.session
def fix(session: nox.Session) -> None:
    """Format the code and apply ruff's safe fixes."""
    prepare(session, "lint", project=False)
    session.run("python", "tools/public_names.py")
    session.run("python", "tools/metadata.py")
    session.run("ruff", "check", "--fix", "--exit-zero", ".")
    session.run("ruff", "format", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check types with mypy, strict."""
    prepare(session, "types", torch=True)
    plugins = os.pathsep.join(str(path / "src") for path in PROJECTS)
    session.run("mypy", *session.posargs, env={"MYPYPATH": plugins})


@nox.session
def surface(session: nox.Session) -> None:
    """Compare the public names with those of the last release's tag (griffe)."""
    prepare(session, "surface", project=False)
    last = ("git", "describe", "--tags", "--match", "v[0-9]*", "--abbrev=0")
    tag = session.run(*last, external=True, silent=True, success_codes=[0, 128], log=False)
    if not tag or not tag.startswith("v"):
        session.log("no release has a tag yet: there is nothing to compare with")
        return
    session.run("griffe", "check", "accel_core", "--search", "src", "--against", tag.strip())


@nox.session(venv_backend="shared")
def docs(session: nox.Session) -> None:
    """Check the documents, run their code, build the site into site/; `--write` writes the generated pages.

    What needs a framework runs where it is: in the sessions deepspeed and trainers.
    """
    prepare(session, *WITH_TORCH, torch=True)
    write = session.posargs or ["--check"]
    if not WINDOWS:  # each backend in a fork
        session.run("python", "tools/member_table.py", *write, env=CLEAN)
    for name in ("backend_pages", "member_page", "recipes"):
        session.run("python", f"tools/{name}.py", *write, env=CLEAN)
    session.run("python", "tools/check_docs.py")
    sphinx = ["sphinx-build", "-W", "--keep-going", "-q", "-E", "-j", "2", "-d", ".nox/doctrees"]
    session.run(*sphinx, "docs", "site", env=CLEAN)
    if not WINDOWS:  # their commands are a POSIX shell's
        session.run("python", "tools/run_documents.py", env=CLEAN)
    session.run("towncrier", "build", "--draft", "--version", "next", silent=True)


@nox.session
def site(session: nox.Session) -> None:
    """Open the site that `./dev docs` built in headless Chromium: errors, search, phone, light and dark."""
    prepare(session, "test", "site", project=False)
    # The other tests' conftest.py imports the project, which is not installed here.
    session.run("python", *PYTEST, "--confcutdir=tests/site", "tests/site", *session.posargs, env=CLEAN)


# ---------------------------------------------------------------------------- speed


@nox.session
def bench(session: nox.Session) -> None:
    """Measure what we promise about speed, as ratios in one run; a table, and a page in docs/benchmarks."""
    prepare(session, "example", "bench", torch=True, plugins=False)  # the benchmarks bring their own plugins
    session.run("python", "-m", "benchmarks", *session.posargs, env=CLEAN)


@nox.session
def bench_deepspeed(session: nox.Session) -> None:
    """Measure the first get_accelerator() and CPU Adam against DeepSpeed's, in an environment of its own."""
    # --no-deps: DeepSpeed asks for any torch, and pip would bring gigabytes. DS_BUILD_OPS=0: no compiler.
    prepare(session, "deepspeed", "example", "bench", torch=True, plugins=False, extra=("deepspeed==0.19.8",))
    env = {**CLEAN, "DS_BUILD_OPS": "0"}
    session.run("python", "-m", "benchmarks.deepspeed_peer", *session.posargs, env=env)
