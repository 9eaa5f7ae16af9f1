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
from accel_train.child_accelerator import Chosen, Progress, run_in_child
from accel_train.launch import environment, formats

__all__ = ["command"]


#: Seconds that reading the variables in a child process may take, at least: it also searches for other
#: plugins of the same name, and each plugin that hangs takes the time of one probe.
_MIN_TIMEOUT = 60.0
#: By format: the function that makes its text of the variables and the backend's declaration.
_FORMATTERS: dict[str, Callable[[dict[str, str], Backend], str]] = {
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
        import_breakers = autoload_conflicts(backend, settings.probe_timeout)
        if import_breakers:
            click.echo(environment.isolation_reason(import_breakers), err=True)
        variables |= environment.for_ranks(backend, import_breakers, environ)
        variables = formats.written(form, dict(sorted(variables.items())))
        LOGGER.debug("%s", environment.difference(variables, environ, backend))
        if form == "json":
            # Only the variables, for a program that sets them.
            output.write(json.dumps(variables, indent=2))
        else:
            text = _FORMATTERS[form](variables, backend)
            if not output.can_write(text):
                raise LaunchError(
                    "stdout's encoding would change some of the values. Set "
                    "PYTHONIOENCODING=utf-8, or use --format shell"
                )
            output.write(text)


def _variables(
    name: Pin | None, settings: Settings, environ: dict[str, str]
) -> tuple[dict[str, str], Backend]:
    """Return the variables to forward and the backend's declaration.

    A named backend that cannot be used here is read from its declaration alone.
    """
    try:
        result = run_in_child(
            variables_in_child,
            {"environ": environ},
            settings,
            name,
            timeout=max(_MIN_TIMEOUT, settings.probe_timeout),
        )
    except BackendUnavailableError:
        backend = _declared_backend(name, settings)
        if backend is None:
            raise
        # For code that searches for plugins again: one of them has crashed or cannot be used.
        os.environ[ACCEL_PROBE.name] = "isolated"
        return environment.forwarded(backend, environ), backend
    return result.value["variables"], result.backend


def _declared_backend(name: Pin | None, settings: Settings) -> Backend | None:
    """Return the declaration of the backend `name`; `None` if no plugin declares it, or no name is given."""
    if name is None:
        return None
    loader = IsolatedLoader(settings.probe_timeout)
    for candidate in find_backends(name, settings, loader):
        if candidate.backend is not None:
            return candidate.backend
    return None


def variables_in_child(
    chosen: Chosen, arguments: dict[str, Any], report_progress: Progress
) -> dict[str, Any]:
    """In the child process: return the variables to forward for the accelerator, as `variables`."""
    report_progress("export_envs()")
    return {
        "variables": environment.forwarded(chosen.accelerator, arguments["environ"])
    }
