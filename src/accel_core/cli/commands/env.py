"""`accel env`: the variables that a launcher must give to ranks on other hosts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from accel_core.cli import options
from accel_core.cli.output import answering

if TYPE_CHECKING:
    from accel_core.settings import Pin

__all__ = ["env"]


@click.command()
@options.backend_name
@click.option(
    "--format",
    "form",
    type=click.Choice(["shell", "json", "deepspeed"]),
    default="shell",
    help="export lines for a shell [default], one JSON object, or DeepSpeed's .deepspeed_env.",
)
def env(name: Pin | None, *, form: str) -> None:
    """Print the variables that ranks on other hosts need, for the chosen accelerator or NAME.

    DS_ACCELERATOR with that accelerator's name, and what is set here of ACCEL_*, GLOO_*, OMP_*, PYTHON*,
    TORCH_* and the vendor's own. No device is needed: with NAME it works on a login node.
    """
    with answering(as_json=form == "json") as output:
        options.read_settings()
        environ = dict(os.environ)  # before a vendor's package adds its own
        from accel_core.cli.live import live_accelerator
        from accel_core.distributed import environment

        accelerator, _ = live_accelerator(name)
        variables = environment.forwarded(accelerator, environ)
        if form == "json":
            output.write_json(variables)
        else:
            write = environment.as_shell if form == "shell" else environment.as_deepspeed
            output.write(write(variables))
