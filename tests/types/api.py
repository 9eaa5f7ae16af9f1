"""What type checkers see of the API; session `types` reads it, nothing runs it.

An `ignore` that is not needed is an error there: a misspelt name that were not seen would fail the session.
"""

from datetime import timedelta
from typing import TYPE_CHECKING

import accel_core
from accel_core import get_accelerater  # type: ignore[attr-defined]  # noqa: F401
from accel_train import init_process_group

if TYPE_CHECKING:
    import torch
    from typing_extensions import assert_type

    acc = accel_core.get_accelerator()
    acc.syncronize()  # type: ignore[attr-defined]

    for device in (0, "npu:1", torch.device("npu", 1), None):
        acc.memory_allocated(device)
        acc.memory_allocated(device=device)
        acc.device(device)
        assert_type(acc.current_stream(device), torch.Stream)
    acc.set_device(1.5)  # type: ignore[arg-type]
    acc.is_bf16_supported(including_emulation=False)

    assert_type(acc.Stream(), torch.Stream)
    assert_type(acc.Event(enable_timing=True), torch.Event)
    torch.ones(1).record_stream(acc.current_stream())
    assert_type(acc.create_graph(), accel_core.Graph | None)
    assert_type(acc.create_op_builder("FusedAdamBuilder"), accel_core.OpBuilderLike)
    assert_type(acc.get_device_capability()["supported_dtypes"], set[torch.dtype])
    assert_type(acc.training_dtype(), torch.dtype)
    assert_type(acc.grad_scaler(torch.float16, init_scale=2.0), torch.amp.GradScaler)
    acc.grad_scaler(torch.float16, init_scal=2.0)  # type: ignore[call-arg]

    init_process_group(timeout=120, group_name="job")
    init_process_group(timeout=timedelta(seconds=120))
    init_process_group(timeout="two minutes")  # type: ignore[arg-type]
    init_process_group(device=0)  # type: ignore[call-arg]
