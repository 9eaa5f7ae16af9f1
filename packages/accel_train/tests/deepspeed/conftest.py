"""DeepSpeed in processes of its own: on our CPU, and on a simulated device that it has never heard of."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from accel_tests import layouts
from accel_tests.children import Ended, clean_environment, run_python

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "training")]

from accel_tests.on_simulated import environment  # noqa: E402 - found by the line above
from ds_training import table as training  # noqa: E402
from patched import copied  # noqa: E402

from accel_simulated import DEVICES, CannotBuildError, build  # noqa: E402

#: A plugin as a stranger publishes it: nobody's device type, a collective backend that DeepSpeed knows not.
ACME = """
from accel_core import Backend, Environment, InTorch, Visibility, hookimpl

@hookimpl
def accel_backends():
    return [Backend(name="acme", priority=950, device_type="acme", vendor_import="torch_acme",
                    in_torch=InTorch(private_use1=True), communication_backend="accl",
                    environment=Environment(forward=("ACCEL_SIMULATE",)),
                    visibility=Visibility(("ACME_VISIBLE_DEVICES",), grammar="cuda"))]
"""


#: A device with less than a GPU, whose plugin has neither a class nor a communication backend.
PLAIN = """
from accel_core import Backend, Environment, InTorch, hookimpl

@hookimpl
def accel_backends():
    return [Backend(name="plain", priority=950, device_type="plain", vendor_import="torch_plain",
                    in_torch=InTorch(private_use1=True),
                    environment=Environment(forward=("ACCEL_SIMULATE",)))]
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs DeepSpeed; the reason is printed with the skips."""
    if find_spec("deepspeed") and find_spec("torch"):
        return
    skip = pytest.mark.skip(reason="deepspeed is not installed; `./dev deepspeed` has an environment with it")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(skip)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What the folders below report: the process of xdist that prints does not look into them."""
    training.pytest_terminal_summary(terminalreporter)
    found: list[list[Any]] = [
        value
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        for name, value in report.user_properties
        if name == "deepspeed class"
    ]
    if found:
        terminalreporter.section("DeepSpeed's accelerator classes and ours")
        for row in (("vendor", "members", "cases", "equal", "different", "ours, open"), *sorted(found)):
            terminalreporter.line("".join(f"{cell:>12}" for cell in row))


@pytest.fixture(scope="session")
def acme_plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for `sys.path` with the installed distribution `accel-acme`."""
    folder = tmp_path_factory.mktemp("acme")
    groups = {layouts.GROUP: {"acme": "accel_acme"}}
    layouts.dist_info(folder, "accel-acme", "1.0", groups, {"accel_acme": ACME})
    return folder


@pytest.fixture(scope="session")
def on_cpu() -> dict[str, str]:
    """Variables of a process in which the CPU is pinned."""
    return _as_users_have_it(clean_environment(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1"))


@pytest.fixture(scope="session")
def asked(on_cpu: dict[str, str]) -> dict[str, str]:
    """The same for what wants DeepSpeed's compiled operators, built or not."""
    return {**on_cpu, "ACCEL_COMPILE": "1"}


@pytest.fixture(scope="session")
def on_acme(acme_plugin: Path) -> dict[str, str]:
    """Variables of a process that has the simulated device and its plugin, pinned."""
    return _on_device("acme", acme_plugin)


@pytest.fixture(scope="session")
def on_plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The same for the simulated device without streams, events, page-locked memory and collectives."""
    folder = tmp_path_factory.mktemp("plain")
    groups = {layouts.GROUP: {"plain": "accel_plain"}}
    layouts.dist_info(folder, "accel-plain", "1.0", groups, {"accel_plain": PLAIN})
    return _on_device("plain", folder)


@pytest.fixture(scope="session")
def deepspeed_copy(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`deepspeed_copy(patch)`: a folder for `PYTHONPATH` with DeepSpeed, patched by a file of contrib/."""
    return functools.cache(lambda patch: copied(patch, tmp_path_factory.mktemp("patched")))


def _on_device(name: str, plugin: Path) -> dict[str, str]:
    try:
        build(DEVICES[name].kind)
    except CannotBuildError as error:
        pytest.skip(str(error))
    variables = {"DS_ACCELERATOR": name, "OMP_NUM_THREADS": "1"}
    return _as_users_have_it(environment(name, variables, path=[plugin]))


def _as_users_have_it(variables: dict[str, str]) -> dict[str, str]:
    """Torch's autoload on, whatever the session that runs the tests was given."""
    return {name: value for name, value in variables.items() if name != "TORCH_DEVICE_BACKEND_AUTOLOAD"}


@pytest.fixture(scope="session")
def child() -> Callable[..., Ended]:
    """`child(arguments, environ)`: run Python with these arguments, and end what is left of it."""
    return run_python
