"""Experiments with the default folders of a program's pipes, caches and configuration files.

No environment variable names a default folder, so unsetting variables does not show the folder's effect.
Each experiment here sets the variable that replaces a default folder, so that the program uses an empty
folder.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from accel_tools.doctor.experiments.search import Experiment
from accel_tools.doctor.experiments.trial import Change, Outcome


class DefaultPlace(NamedTuple):
    """A folder that a program uses unless an environment variable names a different folder."""

    #: The variable that replaces the folder.
    variable: str
    #: The path of the folder, in which `~` stands for the user's home folder.
    folder: str
    #: What the folder contains, for people.
    content: str


#: The default places of vendors' runtimes, of torch and of compilers.
DEFAULT_PLACES = (
    DefaultPlace("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps", "the pipes of NVIDIA's MPS daemon"),
    DefaultPlace("CUDA_CACHE_PATH", "~/.nv/ComputeCache", "CUDA's compiled kernels"),
    DefaultPlace("OCL_ICD_VENDORS", "/etc/OpenCL/vendors", "the list of OpenCL drivers"),
    DefaultPlace("NEO_CACHE_DIR", "~/.cache/neo_compiler_cache", "kernels compiled by Intel's driver"),
    DefaultPlace("SYCL_CACHE_DIR", "~/.cache/libsycl_cache", "SYCL's compiled kernels"),
    DefaultPlace("MIOPEN_USER_DB_PATH", "~/.config/miopen", "MIOpen's database"),
    DefaultPlace("MIOPEN_CUSTOM_CACHE_DIR", "~/.cache/miopen", "MIOpen's compiled kernels"),
    DefaultPlace("AMD_COMGR_CACHE_DIR", "~/.cache/comgr_cache", "ROCm's compiled kernels"),
    DefaultPlace("AMD_COMGR_CACHE_DIR", "~/.cache/comgr", "ROCm's compiled kernels"),
    DefaultPlace("ASCEND_PROCESS_LOG_PATH", "~/ascend/log", "CANN's logs"),
    DefaultPlace("HABANA_LOGS", "/var/log/habana_logs", "SynapseAI's logs"),
    DefaultPlace("HABANA_LOGS", "~/.habana_logs", "SynapseAI's logs"),
    DefaultPlace("TPU_LOG_DIR", "/tmp/tpu_logs", "the logs of libtpu"),
    DefaultPlace("TRITON_CACHE_DIR", "~/.triton/cache", "Triton's compiled kernels"),
    DefaultPlace("TORCH_EXTENSIONS_DIR", "~/.cache/torch_extensions", "torch's compiled extensions"),
    DefaultPlace("XDG_CACHE_HOME", "~/.cache", "the caches of many programs"),
    DefaultPlace("XDG_CONFIG_HOME", "~/.config", "the settings of many programs"),
    DefaultPlace("TMPDIR", "/tmp", "temporary files"),
)  # fmt: skip


def default_place_experiments(
    environ: Mapping[str, str], empty_folder: str
) -> Iterator[Experiment]:
    """Yield one experiment for each folder in `DEFAULT_PLACES` that exists and that no variable replaces.

    Args:
        environ: The environment variables of the program.
        empty_folder: The path of an empty folder that the experiments use instead.
    """
    for place in DEFAULT_PLACES:
        folder = _folder_of(place, environ)
        if place.variable in environ or not os.path.lexists(folder):
            continue
        yield Experiment(
            change=Change(set_variables=((place.variable, empty_folder),)),
            name=f"{folder} ({place.content})",
            step=functools.partial(_step, place.variable, folder),
            is_likely=functools.partial(_is_likely, folder),
            preposition="with an empty folder instead of",
            is_related=True,
        )


def _folder_of(place: DefaultPlace, environ: Mapping[str, str]) -> str:
    home = environ.get("HOME") or str(Path.home())
    return place.folder.replace("~", home, 1)


def _is_likely(folder: str, outcome: Outcome) -> bool:
    return outcome.mentions(folder)


def _step(variable: str, folder: str, _outcome: Outcome) -> str:
    """Return the next step if a program works without the content of `folder`."""
    if variable == "TMPDIR":
        return f"export TMPDIR=FOLDER, where FOLDER is an empty folder; or remove old files from {folder}"
    return (
        f"if no running program uses {folder}, rename this folder; or export {variable}=FOLDER, where FOLDER "
        "is an empty folder"
    )
