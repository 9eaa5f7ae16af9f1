"""`accel env`: print the variables that a launcher must pass to ranks on other hosts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import click

from accel_core import Backend
from accel_core.cli import output as options
from accel_core.cli.output import answering
from accel_core.errors import BackendUnavailableError, LaunchError
from accel_core.explain.autoload import autoload_conflicts
from accel_core.isolation import IsolatedLoader
from accel_core.log import LOGGER
from accel_core.plugins import find_backends
from accel_core.settings import ACCEL_PROBE, DS_ACCELERATOR, Pin, Settings
from accel_train.child_accelerator import Chosen, Step, answer_of
from accel_train.launch import environment, formats

__all__ = ["command"]


#: Seconds that the accelerator's variables may take: who else has its name is looked for there too, and each
#: plugin that hangs takes a deadline of its own.
_PATIENCE = 60.0
#: What writes each form that is not JSON.
_FORMS: dict[str, Callable[[dict[str, str], Backend], str]] = {
    "shell": lambda variables, _: environment.as_shell(variables),
    "deepspeed": lambda variables, _: environment.as_deepspeed(variables),
    "ray": lambda variables, _: formats.as_ray(variables),
    "slurm": lambda variables, _: formats.as_slurm(variables),
    "docker": formats.as_docker,
    "transformers-spec": lambda variables, _: formats.as_transformers_spec(
        variables[DS_ACCELERATOR.name]
    ),
}


@click.command("env")
@options.backend_name
@click.option(
    "--format",
    "form",
    type=click.Choice(
        ["shell", "json", "deepspeed", "ray", "slurm", "docker", "transformers-spec"]
    ),
    default="shell",
    help=(
        "export lines for a shell [default], one JSON object, DeepSpeed's .deepspeed_env, Ray's runtime_env, "
        "an #SBATCH line, options of docker run, or a TRANSFORMERS_TEST_DEVICE_SPEC file."
    ),
)
@options.probe_timeout
def command(name: Pin | None, *, form: str, timeout: float | None) -> None:
    """Print the variables that ranks on other hosts need.

    For the chosen accelerator or NAME: DS_ACCELERATOR with its name; LD_LIBRARY_PATH, PATH and the variables
    of ACCEL_*, GLOO_*, OMP_*, PYTHON*, TORCH_* and the vendor that are set here; and the setting that stops
    another vendor's package from breaking `import torch` on the other hosts. `accel -v env` says what is left
    out. With NAME it needs neither a device nor the vendor's package, and uses the plugin's declaration, so
    it works on a login node.

    A value that a format cannot hold is an error. Docker's, Slurm's and DeepSpeed's leave out search paths.
    """
    with answering(as_json=form == "json") as output:
        settings = options.read_settings(timeout)
        environ = dict(os.environ)  # before a vendor's package adds its own
        variables, backend = _variables(name, settings, environ)
        if spoiled := autoload_conflicts(backend, settings.probe_timeout):
            click.echo(environment.why_kept(spoiled), err=True)
        variables = dict(
            sorted(
                {
                    **variables,
                    **environment.for_ranks(backend, spoiled, environ),
                }.items()
            )
        )
        variables = formats.written(form, variables)
        LOGGER.debug("%s", environment.difference(variables, environ, backend))
        if form == "json":
            output.write(
                json.dumps(variables, indent=2)
            )  # variables alone, as whoever sets them wants them
        else:
            text = _FORMS[form](variables, backend)
            if not output.can_write(text):
                raise LaunchError(
                    "stdout's encoding would change some of the values. Set "
                    "PYTHONIOENCODING=utf-8, or use --format shell"
                )
            output.write(text)


def _variables(
    name: Pin | None, settings: Settings, environ: dict[str, str]
) -> tuple[dict[str, str], Backend]:
    """Give the forwarded variables and their backend, by its declaration if it cannot be built here."""
    given = {"environ": environ}
    try:
        timeout = max(_PATIENCE, settings.probe_timeout)
        asked = answer_of(variables_in_child, given, settings, name, timeout=timeout)
    except BackendUnavailableError:
        found = (
            find_backends(name, settings, IsolatedLoader(settings.probe_timeout))
            if name is not None
            else ()
        )
        declared = [c.backend for c in found if c.backend is not None]
        if not declared:
            raise
        os.environ[ACCEL_PROBE.name] = (
            "isolated"  # for whoever looks for plugins once more
        )
        return environment.forwarded(declared[0], environ), declared[0]
    return asked.answer["variables"], asked.backend


def variables_in_child(
    chosen: Chosen, arguments: dict[str, Any], step: Step
) -> dict[str, Any]:
    """In the child: return the variables to forward for the accelerator."""
    step("export_envs()")
    return {
        "variables": environment.forwarded(chosen.accelerator, arguments["environ"])
    }
