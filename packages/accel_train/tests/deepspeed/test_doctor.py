"""The doctor asks the real DeepSpeed what it would choose."""

from __future__ import annotations

import json
from typing import Any

import pytest
from accel_tests import children


def asked(**variables: str) -> dict[str, Any]:
    """The one finding."""
    environ = children.clean_environment() | variables
    command = ["-m", "accel_core", "doctor", "--topic", "others", "--json", "--timeout", "50"]
    ended = children.run_python(command, environ)
    [topic] = json.loads(ended.stdout)["topics"]
    [finding] = topic["findings"]
    found: dict[str, Any] = finding
    return found


@pytest.mark.parametrize("pin", ["", "cpu"])
def test_on_the_cpu_it_agrees(pin: str) -> None:
    finding = asked(**({"DS_ACCELERATOR": pin} if pin else {}))
    assert finding["code"] == "others.same"
    assert finding["what"].endswith(" would choose cpu too")


def test_a_pin_that_only_we_understand() -> None:
    finding = asked(DS_ACCELERATOR="npu,cpu")
    assert (finding["code"], finding["level"]) == ("others.fails", "warning")
    assert "DS_ACCELERATOR" in finding["what"]
    assert finding["step"].startswith("export DS_ACCELERATOR=cpu ")
    assert asked(DS_ACCELERATOR="npu,cpu", ACCEL_INTEGRATIONS="deepspeed")["code"] == "others.integrated"
