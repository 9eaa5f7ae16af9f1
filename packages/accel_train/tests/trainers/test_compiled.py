"""torch.compile inside Lightning and Transformers: by the compiler of `acme`, as on the CPU by the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", minversion="2.13")
pytest.importorskip("sklearn")

pytestmark = pytest.mark.slow


def test_lightnings_trainer_compiles_for_the_device_and_puts_torchs_default_back(
    on_acme: Callable[..., Any],
) -> None:
    pytest.importorskip("lightning")
    answer = on_acme("compiled_trainings:lightning").answer
    assert answer["equal"]
    assert answer["accuracy"] > 0.8
    # In the training and after it, on acme and on the CPU; Fabric's lasts as long as it.
    assert answer["defaults"] == ["accel", "inductor", "aot_eager", "aot_eager", "accel"]


def test_torch_compile_of_transformers_is_the_accelerators_compiler(
    on_acme: Callable[..., Any], tmp_path: Path
) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("trl")
    acme = on_acme("compiled_trainings:transformers", str(tmp_path)).answer
    cpu = on_acme("compiled_trainings:transformers", str(tmp_path), environ={"DS_ACCELERATOR": "cpu"}).answer
    assert (acme.pop("device"), cpu.pop("device")) == ("acme:0", "cpu")
    assert acme == cpu
    assert (acme["compiler"], acme["compiled"], acme["accel"]) == ("aot_eager", "OptimizedModule", "eager")
    assert acme["losses"][-1] < 0.8 * acme["losses"][0]
    assert (
        "the compiler is 'cudagraph_trees', which Accelerate's list (DynamoBackend) lacks" in acme["refused"]
    )
