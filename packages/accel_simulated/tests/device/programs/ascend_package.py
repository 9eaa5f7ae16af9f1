"""Print the answers of Ascend's package by name; torch_npu is imported before torch."""

import torch_npu, json, os, warnings
import torch


def kinds_of_warnings(*calls):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for call in calls:
            call()
    return [warning.category.__name__ for warning in caught]


def quietly(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call()


def scale_after_an_overflow(scaler):
    weight = torch.ones(1, device="npu", requires_grad=True)
    step = torch.optim.SGD([weight])
    scaler.scale((weight * torch.inf).sum()).backward()
    scaler.step(step)
    scaler.update()
    return scaler.get_scale()


def error_of(call, *arguments):
    try:
        call(*arguments)
    except AssertionError as error:
        return str(error)


npu = torch.npu
answer = {
    "torch_npu.npu is torch.npu": torch_npu.npu is npu,
    "capability": npu.get_device_capability(),
}
os.environ["TORCH_NPU_DEVICE_CAPABILITY"] = "8.0"
answer |= {
    "capability that the variable sets": npu.get_device_capability(),
    "memory_cached": quietly(npu.memory_cached),
    "max_memory_cached": quietly(npu.max_memory_cached),
    "old names of memory warn": kinds_of_warnings(
        npu.memory_cached, npu.max_memory_cached
    ),
    "old names of amp warn": kinds_of_warnings(
        lambda: npu.amp.custom_fwd(lambda: None),
        lambda: npu.amp.custom_bwd(lambda: None),
    ),
    "fixed scale after an overflow": scale_after_an_overflow(
        npu.amp.GradScaler(8.0, dynamic=False)
    ),
    "scale after an overflow": scale_after_an_overflow(npu.amp.GradScaler(8.0)),
    "devices reach each other": npu.can_device_access_peer(0, 1),
    "default generator's device": npu.get_default_generator(1).device.index,
    "properties of a device that is not there": error_of(npu.get_device_properties, 2),
    "name of a device that is not there": error_of(npu.get_device_name, 2),
    "graphs have a debug mode": hasattr(npu.NPUGraph(), "enable_debug_mode"),
    "name": npu.get_device_name(1),
}
with npu.amp.autocast(dtype=torch.bfloat16):
    product = torch.ones(2, 2, device="npu") @ torch.ones(2, 2, device="npu")
answer["type under autocast"] = str(product.dtype)
print(json.dumps(answer))
