"""Where a step is followed: one shell, in a scratch folder, on this machine or on one that a mount shows."""

import os
import sys
from pathlib import Path

from accel_tests.children import run_command, without

#: What a machine shows: PCI functions, `vendor:device/class`; device nodes; files with their texts.
MACHINES = {
    "nvidia": {
        "pci": ("10de:2330/030200",),
        "nodes": ("/dev/nvidia0", "/dev/nvidiactl"),
        "files": (
            "/proc/driver/nvidia/version=NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15",
        ),
    },
    "ascend": {
        "pci": ("19e5:d802/120000",),
        "nodes": ("/dev/davinci0", "/dev/davinci_manager"),
        "files": (),
    },
    "metax": {"pci": ("9999:4001/038000",), "nodes": ("/dev/mxcd",), "files": ()},
    "hygon": {
        "pci": ("1d94:55b7/038000",),
        "nodes": ("/dev/kfd", "/dev/mkfd"),
        "files": (),
    },
    # An integrated GPU of Intel's that is older than Arc.
    "iris": {"pci": ("8086:9a49/030000",), "nodes": (), "files": ()},
    "wsl": {"pci": (), "nodes": ("/dev/dxg",), "files": ()},
    "nothing": {"pci": (), "nodes": (), "files": ()},
}
#: Nodes that every process needs.
_USUAL = ("null", "zero", "full", "random", "urandom", "tty")
#: Between the outputs of the first try and the second.
_MARK = "=== the step was followed ==="


def followed(folder, *, before, attempt, step, again, machine=""):
    """What `attempt` prints, and after `step` what `again` does, all typed into one shell."""
    lines = [
        *(_mounts(folder, machine) if machine else ()),
        before,
        f"({attempt}) 2>&1",
        step,
        f"echo '{_MARK}'",
        f"({again}) 2>&1",
    ]
    script = folder / "step.sh"
    script.write_text("\n".join(lines), encoding="utf-8")
    program = ["unshare", "--mount", "bash", script] if machine else ["bash", script]
    environ = {
        **without("ACCEL_", "DS_"),
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "COLUMNS": "1000",
        "HOME": str(folder),
        # A simulated device is compiled once, not for each row.
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME")
        or str(Path.home() / ".cache"),
        "PYTHON": sys.executable,
    }
    done = run_command(program, environ, cwd=folder, timeout=300)
    first, mark, second = done.stdout.partition(_MARK)
    assert mark, f"the step ended the shell:\n{done.stdout}{done.stderr}"
    return first, second


def _mounts(folder, machine):
    """Commands that lay that machine's bus, nodes and files over this one's, in this namespace alone."""
    shown = MACHINES[machine]
    nodes = folder / "nodes"
    lines = [
        "set -e",
        f"mkdir -p {nodes} && mount -t tmpfs tmpfs {nodes} && mkdir {nodes}/shm",
        f"for name in {' '.join(_USUAL)}; do",
        f"  touch {nodes}/$name; mount --bind /dev/$name {nodes}/$name",
        "done",
        f"mount --bind /dev/shm {nodes}/shm; ln -s /proc/self/fd {nodes}/fd",
        f"mount --rbind {nodes} /dev",
        "for place in /sys/bus/pci /sys/module /proc/driver; do mount -t tmpfs tmpfs $place; done",
        "mkdir /sys/bus/pci/devices",
    ]
    for number, function in enumerate(shown["pci"]):
        ids, _, code = function.partition("/")
        vendor, _, device = ids.partition(":")
        place = f"/sys/bus/pci/devices/0000:{16 + number:02x}:00.0"
        alias = (
            f"pci:v0000{vendor.upper()}d0000{device.upper()}sv00000000sd00000000"
            f"bc{code[:2]}sc{code[2:4]}i{code[4:]}"
        )
        lines += [f"mkdir {place}", f"printf {alias} > {place}/modalias"]
    lines += [f"touch {node}" for node in shown["nodes"]]
    for file in shown["files"]:
        path, _, text = file.partition("=")
        lines.append(f"mkdir -p {Path(path).parent} && echo '{text}' > {path}")
    return [*lines, "set +e"]
