"""Implement `accel deepspeed`, which starts DeepSpeed's launcher for ranks on the chosen accelerator."""

from __future__ import annotations

import sys

import click

from accel_core.cli.output import status_of
from accel_core.errors import AccelError
from accel_train.child_accelerator import print_fallback_warnings
from accel_train.commands import launcher

__all__ = ["command"]

#: The launcher's most used options, for completion in a shell. A list of all options would need DeepSpeed.
_COMPLETED_OPTIONS = (
    "--help", "--num_gpus", "--num_nodes", "--hostfile", "--include", "--exclude", "--master_addr",
    "--master_port", "--node_rank", "--launcher", "--module", "--no_python", "--bind_cores_to_rank",
    "--no_ssh", "--force_multi",
)  # fmt: skip
_HELP = """\
accel deepspeed [options of DeepSpeed's launcher] SCRIPT [arguments of the script]

Start DeepSpeed's launcher. DeepSpeed's get_accelerator() returns accel-core's accelerator in the launcher, on
every node, and in every rank. All options are the launcher's options, which are listed below. To choose the
accelerator:

  accel why                                       show which accelerator would be chosen
  DS_ACCELERATOR=npu accel deepspeed train.py     use npu, or fail with the reason
"""


@click.command(
    "deepspeed",
    cls=launcher.Launcher,
    add_help_option=False,
)
@launcher.all_arguments(*_COMPLETED_OPTIONS)
def command(arguments: tuple[str, ...]) -> None:
    """Start a script's ranks with DeepSpeed's launcher.

    The ranks run on the chosen accelerator. All options are the launcher's options, which accel deepspeed
    --help lists. DeepSpeed's get_accelerator() returns accel-core's accelerator in the launcher, on every
    node, and in every rank.
    """
    # Imported here so that only the command that needs the integration imports it.
    from accel_train.deepspeed._launcher import run_launcher

    is_help_requested = arguments and arguments[0] in ("-h", "--help", "--help-all")
    if is_help_requested:
        click.echo(_HELP)
        arguments = ("--help",)  # The launcher prints its own help below.
    try:
        with print_fallback_warnings():
            run_launcher(arguments)
    except AccelError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(status_of(error))
