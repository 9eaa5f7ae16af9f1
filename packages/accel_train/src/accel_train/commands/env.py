"""Implement `accel env`, which prints the variables that a launcher must pass to ranks on other hosts."""

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


#: The minimum time limit for the child process, in seconds. The process also searches for other plugins that
#: declare the backend's name, and a plugin that hangs uses up the time limit of one probe.
_MIN_TIMEOUT = 60.0
#: For each format, the function that formats the variables. Its second argument is the backend's declaration.
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
    "output_format",
    type=click.Choice(
        ["shell", "json", "deepspeed", "ray", "slurm", "docker", "transformers-spec"]
    ),
    default="shell",
    help=(
        "Output format: export lines for a shell [default], one JSON object, DeepSpeed's .deepspeed_env, "
        "Ray's runtime_env, an #SBATCH line, options of docker run, or a TRANSFORMERS_TEST_DEVICE_SPEC file."
    ),
)
@options.probe_timeout
def command(name: Pin | None, *, output_format: str, timeout: float | None) -> None:
    """Print the environment variables that ranks on other hosts need.

    DS_ACCELERATOR gets the name of the chosen accelerator, or NAME. LD_LIBRARY_PATH, PATH, ACCEL_*, GLOO_*,
    OMP_*, PYTHON*, TORCH_* and the vendor's variables get their values on this host. If another vendor's
    package breaks `import torch`, further variables keep torch from loading that package. `accel -v env`
    lists the variables that are left out, with the reasons. With NAME, the command also works on a login
    node, because it then needs only the plugin's declaration, and neither a device nor the vendor's package.

    The command fails if the output format cannot represent a value. The formats for Docker, Slurm and
    DeepSpeed leave out search paths, such as PATH.
    """
    as_json = output_format == "json"
    with answering(as_json=as_json) as output:
        settings = options.read_settings(timeout)
        # Copied before a vendor's package adds variables.
        environ = dict(os.environ)
        variables, backend = _variables_and_declaration(name, settings, environ)
        conflicts = autoload_conflicts(backend, settings.probe_timeout)
        if conflicts:
            click.echo(environment.isolation_reason(conflicts), err=True)
        variables |= environment.import_variables(backend, conflicts, environ)
        sorted_variables = dict(sorted(variables.items()))
        variables = formats.variables_in_format(output_format, sorted_variables)
        LOGGER.debug("%s", environment.describe_difference(variables, environ, backend))
        if as_json:
            # The output has only the variables, for a program that sets them.
            output.write(json.dumps(variables, indent=2))
        else:
            text = _FORMATTERS[output_format](variables, backend)
            if not output.can_write(text):
                raise LaunchError(
                    "stdout's encoding cannot write some of the values. Set "
                    "PYTHONIOENCODING=utf-8, or use --format shell."
                )
            output.write(text)


def _variables_and_declaration(
    name: Pin | None, settings: Settings, environ: dict[str, str]
) -> tuple[dict[str, str], Backend]:
    """Return the variables to forward, and the backend's declaration.

    If the backend named `name` cannot be used here, the variables are based only on the backend's
    declaration.
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
        # A plugin may have crashed, so later searches for plugins must not import them in this process.
        os.environ[ACCEL_PROBE.name] = "isolated"
        return environment.forwarded(backend, environ), backend
    return result.value["variables"], result.backend


def _declared_backend(name: Pin | None, settings: Settings) -> Backend | None:
    """Return the declaration of the backend named `name`.

    Returns `None` if `name` is `None`, or if no plugin declares such a backend.
    """
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
    """Return `{"variables": …}`, the environment variables to forward for the accelerator.

    This function runs in the child process.
    """
    report_progress("export_envs()")
    return {
        "variables": environment.forwarded(chosen.accelerator, arguments["environ"])
    }
