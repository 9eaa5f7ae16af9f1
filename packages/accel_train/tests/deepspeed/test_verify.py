"""Level 4 of `accel verify` with DeepSpeed, on a device that works and on one that fails."""

import json

import pytest
from accel_tests.children import finish, start
from accel_tests.on_disk import install_strangers
from patched import with_path

from accel_testing.conformance.catalogue import checks

GROUP = "frameworks.deepspeed."
NAMES = [check.name for check in checks() if check.name.startswith(GROUP)]
#: Pinned copies are empty, all ranks are on one device, and bfloat16 is claimed in one of two places.
BROKEN = """
import torch
from accel_core.interface.torch_device import TorchAccelerator

class Broken(TorchAccelerator):
    def pin_memory(self, tensor, align_bytes=1):
        return torch.zeros_like(tensor)
    def is_bf16_supported(self):
        return False
    def supported_dtypes(self):
        return [torch.float32, torch.bfloat16, torch.float16]
"""


def verified(environ):
    """The document, and what is wrong by the check's name; level 4 is that of the checks that are named."""
    named = [word for name in NAMES for word in ("--check", name)]
    command = ["-m", "accel_core", "verify", "acme", "--json", *named]
    done = finish(start(command, environ), 300, check=False)
    document = json.loads(done.stdout)
    rows = {row["name"].removeprefix(GROUP): row for row in document["checks"]}
    return document, {
        name: row["message"] for name, row in rows.items() if row["outcome"] != "passed"
    }


@pytest.mark.nightly(
    reason="all of level 4; by day a broken device passes the checks that it does not break"
)
def test_everything_is_kept_on_a_device_that_works(on_acme):
    document, wrong = verified(on_acme)
    assert wrong == {}
    assert document["level"] == 4
    assert document["reached"] == 4
    assert len(document["checks"]) == len(NAMES)
    assert [text.partition(" ")[0] for text in document["frameworks"]] == ["deepspeed"]


def test_what_is_broken_is_found_where_it_is_used(on_acme, tmp_path):
    """Each of the two by its own check, and the others pass."""
    fields = {"communication_backend": "accl", "accelerator": "acme_broken:Broken"}
    install_strangers(tmp_path, "acme", modules={"acme_broken": BROKEN}, **fields)
    _, wrong = verified(with_path(on_acme, tmp_path))
    assert wrong.keys() == {"zero_2_offloaded", "zero_in_bfloat16"}
    assert "plain torch on the CPU gives" in wrong["zero_2_offloaded"]
    assert (
        "bfloat16" in wrong["zero_in_bfloat16"] or "bf16" in wrong["zero_in_bfloat16"]
    )
