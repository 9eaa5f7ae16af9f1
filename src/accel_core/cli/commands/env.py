"""`accel env`: the variables that a launcher must give to ranks on other hosts."""

from __future__ import annotations

import os

import click

from accel_core.cli import options
from accel_core.cli.accelerator import named_or_chosen
from accel_core.cli.output import answering
from accel_core.distributed import environment
from accel_core.settings import Pin

__all__ = ["command"]


@click.command("env")
@options.backend_name
@click.option(
    "--format",
    "form",
    type=click.Choice(["shell", "json", "deepspeed"]),
    default="shell",
    help="export lines for a shell [default], one JSON object, or DeepSpeed's .deepspeed_env.",
)
def command(name: Pin | None, *, form: str) -> None:
    """Print the variables that ranks on other hosts need, for the chosen accelerator or NAME.

    DS_ACCELERATOR with that accelerator's name, and what is set here of ACCEL_*, GLOO_*, OMP_*, PYTHON*,
    TORCH_* and the vendor's own. No device is needed: with NAME it works on a login node.
    """
    with answering(as_json=form == "json") as output:
        options.read_settings()
        environ = dict(os.environ)  # before a vendor's package adds its own
        accelerator, _ = named_or_chosen(name)
        variables = environment.forwarded(accelerator, environ)
        if form == "json":
            output.write_json(variables)
        else:
            write = environment.as_shell if form == "shell" else environment.as_deepspeed
            output.write(write(variables))
