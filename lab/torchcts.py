"""Run torchcts, a suite that others wrote for torch's backends, on the simulated device: `./dev torchcts`.

Each of its folders by name: without one it collects for minutes. `./dev torchcts -- memory rng` runs those.
What was seen is put into lab/records/torchcts.json; a failure that `KNOWN` does not name fails.

`./dev torchcts-tpu` runs it on the real TorchTPU, over XLA's library for the CPU. There a failure fails that
the record before did not have, in a suite that it has counts of.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "lab/records/torchcts.json"
SUITES = (
    "device_api", "multi_device", "memory", "rng", "errors", "serialization", "strides", "training",
    "autograd", "dtypes", "workloads", "stress",
)  # fmt: skip
#: Tests that fail on a correct device, and why.
KNOWN = {
    "test_rrelu_train_false_variants": "the test compares uninitialized memory, which differs on the "
    "CPU, too",
    "test_stride_and_storage_offset_metadata": "the test compares the strides of a view with those of "
    "a copy, and a copy is contiguous on every device",
    "test_embedding_bag_scale_grad_by_frequency_contract": "torch's CPU kernel divides by a wrong count; "
    "the device is bit-identical to the CPU, which the test excludes",
}
#: What a vendor would declare of the simulated device: no float8, no quantization, no canaries around memory.
CAPABILITIES = (
    "inference", "training", "serialization", "rng", "device_generator", "rng_distributions",
    "double_backward", "gradcheck", "gradient_checkpointing", "autocast", "dataloader", "module_hooks",
    "channels_last", "pinned_memory", "streams", "events", "deterministic", "device_api", "multi_device",
    "ieee754", "foreach",
)  # fmt: skip
DTYPES = (
    "float16", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool",
    "complex64", "complex128",
)  # fmt: skip
MANIFEST = """
import torch

manifest = {values!r} | {{"supported_dtypes": {{getattr(torch, name): True for name in {dtypes!r}}}}}
"""
VALUES = {
    "manifest_version": 1,
    "device_name": "acme",
    "backend_import": "accel_core",
    "device_count": 2,
    "ieee754_seed": 67,
    "max_samples": 3,
    "max_samples_ieee754": 1,
    "semantic_level": 8,
    "hardware": {
        "memory_model": "discrete",
        "device_memory_gb": "auto",
        "system_memory_gb": "auto",
        "oom_recoverable": True,
    },
    "resource_limits": {
        "max_device_memory_mb": 512,
        "max_system_memory_mb": None,
        "max_tensor_size_mb": 256,
        "cleanup_threshold_pct": 80,
    },
    "capabilities": dict.fromkeys(CAPABILITIES, True),
    "skip_ops": [],
    "tolerance_overrides": {},
}
#: TorchTPU registers its device by itself only where the PCI bus shows one: the plugin does it here. The
#: suite waits by `torch.tpu.synchronize`, which TorchTPU keeps for torch; its error names this one.
TPU_HERE = """
import torch

import accel_core

accel_core.accelerator("tpu")
torch.tpu.synchronize = torch.accelerator.synchronize
"""
#: TorchTPU counts one device, has one queue and no pinned memory.
WITHOUT_ON_TPU = ("multi_device", "streams", "events", "pinned_memory")
#: Tests that end their process there, and would hide all the others of their folder.
ENDS_ON_TPU = {
    "test_oom_recovery": "the test allocates all memory; here that is the machine's memory, so Linux ends "
    "the process",
    "cpu_fallback": "each test passes a device tensor to a CPU function of torch, which reads from the "
    "tensor's address",
}

#: Tests that pass or fail there by the numbers that were drawn.
VARIES_ON_TPU = {
    "test_gradient_accumulation": "it compares to the bit what was added up in two orders, of numbers from "
    "no fixed seed",
}


def main(words: list[str]) -> int:
    """Run the suites, keep what came, and return 1 if a test fails that is not known to."""
    device, key = ("tpu", "tpu") if "--tpu" in words else ("acme", "suites")
    names = [word for word in words if word != "--tpu"]
    if unknown := sorted(set(names) - set(SUITES)):
        print(f"{', '.join(unknown)}: expected some of {', '.join(SUITES)}")
        return 2
    home = Path(os.environ["ACCEL_TORCHCTS"])  # of the session
    told = json.loads(RECORD.read_text(encoding="utf-8"))
    before = told.get(key, {})
    rows = {**before} if names else {}
    for name in names or SUITES:
        rows[name] = _suite(name, home, device)
        print(
            f"{name}: {rows[name]['passed']} of {rows[name]['of']}",
            *rows[name]["failed"],
            flush=True,
        )
    (found,) = metadata.distributions(name="torchcts", path=[str(home)])
    told |= {
        "version": found.version,
        "torch": metadata.version("torch"),
        "known": KNOWN,
    }
    told["ends_on_tpu"] = ENDS_ON_TPU
    told[key] = {name: rows[name] for name in SUITES if name in rows}
    RECORD.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8", newline="\n")
    told_of = [
        name
        for name in names or SUITES
        if device == "acme" or before.get(name, {}).get("of")
    ]
    failed = {test for name in told_of for test in rows[name]["failed"]}
    known = set(KNOWN)
    if device == "tpu":
        known = {
            *VARIES_ON_TPU,
            *(test for row in before.values() for test in row["failed"]),
        }
    if new := failed - known:
        print(f"failed, and not known to: {', '.join(sorted(new))}")
    return int(bool(new))


def _suite(name: str, home: Path, device: str) -> dict[str, Any]:
    """The number of tests of one folder that passed, and the names of those that failed."""
    values, start, left_out, environ = VALUES, [], (), {**os.environ}
    if device == "acme":
        start = [
            str(Path(sys.executable).with_name("accel")),
            "simulate",
            "acme:2",
            "--",
        ]
    else:
        from accel_tpu.trial import environment

        environ |= environment()[0]
        able = {each: each not in WITHOUT_ON_TPU for each in CAPABILITIES}
        own = {
            "device_name": "tpu",
            "backend_import": "tpu_here",
            "device_count": 1,
            "capabilities": able,
        }
        values, left_out = (
            {**VALUES, **own},
            ("-k", f"not ({' or '.join(ENDS_ON_TPU)})"),
        )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "manifest.py").write_text(
            MANIFEST.format(values=values, dtypes=DTYPES), encoding="utf-8"
        )
        Path(folder, "tpu_here.py").write_text(TPU_HERE, encoding="utf-8")
        command = [
            *(*start, sys.executable),
            *(
                "-m",
                "torchcts",
                "run",
                "--device",
                device,
                "--level",
                "8",
                "-q",
                "-p",
                "no:xdist",
            ),
            # Not under this project's settings of pytest, where a warning is an error.
            *(
                str(home / "torchcts" / name),
                "--junitxml=told.xml",
                "-c",
                os.devnull,
                f"--rootdir={home}",
            ),
            *(f"--confcutdir={home}", *left_out),
        ]
        environ["PYTHONPATH"] = os.pathsep.join([str(home), folder])
        done = subprocess.run(
            command,
            cwd=folder,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        told = Path(folder, "told.xml")
        if not told.is_file() and device == "tpu":
            return {"passed": 0, "of": 0, "failed": ["its process ended"]}
        if not told.is_file():
            raise SystemExit(
                f"{name}: torchcts did not run: {(done.stdout + done.stderr)[-2000:]}"
            )
        cases = list(ET.parse(told).iter("testcase"))
    failed = [
        case
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = [case for case in cases if case.find("skipped") is not None]
    names = sorted({case.get("name", "").partition("[")[0] for case in failed})
    return {
        "passed": len(cases) - len(failed) - len(skipped),
        "of": len(cases),
        "failed": names,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
