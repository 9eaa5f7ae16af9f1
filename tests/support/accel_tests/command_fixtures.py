"""The `accel` command, in a world of its own: in this process, its children's answers too, or in a child."""

import contextlib
import copy
import importlib
import json
import os
import re
import sys
import threading
import traceback

import pytest
from click.testing import CliRunner

from accel_core import Environment, Visibility, log, torch_import
from accel_core.cli import accel as command
from accel_core.sandbox import child
from accel_tests import children
from accel_tests.fixtures import NOTHING_CHOSEN, other_modules
from accel_tests.plugins import arguments, declaring, hook

_RUN = """
import sys
from accel_core.cli import main
sys.argv = ["accel", *{arguments!r}]
try:
    main()
finally:
    loaded = sorted({watched!r} & set(sys.modules))
    if {watched!r}:
        sys.stderr.write(f"loaded: {{loaded}}")
"""


#: A vendor's accelerator that answers everything.
CARD = """
import torch
from accel_core import Accelerator, DeviceProperties
from accel_core.interface.streams import HostStream

class Card(Accelerator):
    def device_count(self):
        return 2
    def current_device(self):
        return 0
    def device_properties(self, device_index=None):
        return DeviceProperties(
            name=f"Card {device_index}", total_memory=80 * 2**30, capability=(9, 0),
            uuid=f"CARD-{device_index}", pci_address="0000:3b:00.0", multiprocessors=132,
        )
    def total_memory(self, device_index=None):
        return 80 * 2**30
    def available_memory(self, device_index=None):
        return 60 * 2**30
    def supported_dtypes(self):
        return ["torch.float32", "torch.bfloat16"]
    def communication_backend_version(self):
        return (2, 27, 3)
    def op_builders(self):
        return {"FusedAdamBuilder": "somewhere:FusedAdamBuilder"}
    @property
    def Stream(self):
        return torch.Stream
"""
FIELDS = {
    "accelerator": "card_device:Card",
    "visibility": Visibility(("CARD_VISIBLE_DEVICES",)),
    "environment": Environment(("CARD", "CCL")),
    "description": "somebody's card",
}


#: What ends a process, holds it up, or prints below Python.
_DEADLY = re.compile(
    r"_exit\(|abort\(|kill\(|os\.(write|system)|string_at|sleep\(|while True|atexit|SystemExit"
)

#: Threads that run children at once take turns: they share this process's modules and variables.
_turn = threading.RLock()


@contextlib.contextmanager
def as_a_new_process(root, path, environ):
    """Within the block, have what a new process has: no torch, plugin or vendor imported, nothing chosen."""
    with pytest.MonkeyPatch.context() as patch:
        variables, aside = dict(os.environ), other_modules(root)
        for name, value in copy.deepcopy(NOTHING_CHOSEN).items():
            patch.setattr(f"accel_core.current.{name}", value)
        patch.setattr(torch_import, "imported_by_us", False)
        patch.setattr(sys, "path", list(path))
        _set_variables(environ)
        importlib.invalidate_caches()
        try:
            yield
        finally:
            _set_variables(variables)
            other_modules(root)
            sys.modules.update(aside)


def _set_variables(wanted):
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    os.environ.update(wanted)


class Accel:
    """Runs `accel` where only the plugins of this test are installed, and a simulated torch.

    In this process by click's runner, where children are functions that are called here, their arguments and
    answers as JSON; `process`, and what only a process shows: in one of its own.
    """

    def __init__(self, world):
        self.world = world

    def __call__(
        self, *args, torch=True, watched=frozenset(), cwd=None, process=False, **env
    ):
        variables = {"COLUMNS": "", "NO_COLOR": "", **env}
        path = [
            *self.world.path,
            *(
                [str(children.SIMULATED)]
                if torch and str(children.SIMULATED) not in self.world.path
                else []
            ),
        ]
        in_threads = args[:1] == (
            "doctor",
        )  # its topics are threads, which share a process's modules
        if process or watched or cwd or in_threads or self._ends_processes():
            code = _RUN.format(arguments=args, watched=watched)
            return children.run(code, path, variables, cwd=cwd)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(child, "run", self._answer)
            patch.setattr(
                child,
                "run_in_parallel",
                lambda function, items, _at_once: [*map(function, items)],
            )
            patch.setattr(child, "supervision", child.Supervision())
            patch.setattr(log.LOGGER, "level", log.LOGGER.level)
            with as_a_new_process(
                self.world.root, path, children.clean_environment(**variables)
            ):
                done = CliRunner().invoke(
                    command,
                    [*map(str, args)],
                    prog_name="accel",
                    catch_exceptions=False,
                )
        return children.Ended(done.exit_code, done.stdout, done.stderr, False)

    def _ends_processes(self):
        """Whether something that is installed ends, stops or bypasses the process that it runs in."""
        sources = self.world.root.rglob("*.py")
        return any(
            _DEADLY.search(file.read_text(encoding="utf-8", errors="ignore"))
            for file in sources
        )

    def _answer(
        self, function, arguments, timeout, *, autoload=False, live=False, start=None
    ):
        """Call the function here, as `child.run` calls it in a child."""
        stages: list[tuple[str, dict[str, object]]] = [("start", {})]

        def begin_stage(stage, **facts):
            stages.append((stage, json.loads(json.dumps(facts))))

        variables = {} if autoload else {torch_import.AUTOLOAD: "0"}
        with (
            _turn,
            as_a_new_process(self.world.root, sys.path, {**os.environ, **variables}),
        ):
            try:
                with contextlib.redirect_stdout(sys.stderr):
                    answer = function(json.loads(json.dumps(arguments)), begin_stage)
            except BaseException:
                stage, facts = stages[-1]
                output = traceback.format_exc()[-8000:].strip()
                return child.ChildReport(None, 1, stage, output, stage_facts=facts)
        stage, facts = stages[-1]
        return child.ChildReport(
            json.loads(json.dumps(answer)), 0, stage, stage_facts=facts
        )

    def json(self, *args, status=0, torch=True, cwd=None, **env):
        """The one document that the command prints, ending with this exit status."""
        done = self(*args, "--json", torch=torch, cwd=cwd, **env)
        assert done.returncode == status, done.stderr
        return json.loads(done.stdout)  # all of stdout: nothing else may be there

    def install(
        self, name, answer="ProbeResult(True, devices=2)", priority=990, **more
    ):
        """Install a backend whose probe gives this answer."""
        version, distribution = more.pop("version", "1.5"), more.pop("distribution", "")
        source = declaring(arguments(name, priority, **more)) + hook(
            "accel_probe", "backend", f"return {answer}"
        )
        self.world.plugin(name, source, distribution=distribution, version=version)

    def install_card(self, more="", extra=""):
        """Install a backend with a whole accelerator, `more` as a line of its class, `extra` hooks."""
        self.world.module("card_device", f"{CARD}    {more}\n")
        self.world.backend("card", 990, extra=extra, **FIELDS)


@pytest.fixture
def accel(world):
    """The command."""
    return Accel(world)


def backend(document, name, distribution=""):
    """The one backend of that name in the document of `accel list`."""
    found = [
        b
        for b in document["backends"]
        if b["name"] == name and distribution in ("", b["distribution"])
    ]
    assert len(found) == 1, found
    return found[0]


@pytest.fixture(name="backend")
def _backend():
    return backend
