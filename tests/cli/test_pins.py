"""A pin gets its device or an error, whichever packages bring devices, and whoever asks."""

import json
from typing import NamedTuple

import pytest

from accel_core import TorchIntegration

#: A package behind `torch.backends` that names torch's one PrivateUse1 slot, as PyTorch's registration does.
BRINGS = """
def _autoload():
    import torch, types
    if torch._C.private_use1 != "privateuseone":
        raise RuntimeError("torch.register_privateuse1_backend() has already been set!")
    torch._C.private_use1 = torch.accelerator.current = "{device}"
    module = types.ModuleType("torch.{device}")
    module.device_count = lambda: 2
    setattr(torch, "{device}", module)
"""
#: What a plugin's vendor import does by itself.
BRINGS_AT_IMPORT = BRINGS + "\n_autoload()\n_autoload = lambda: None\n"
BREAKS = "raise OSError('lib{device}.so: cannot open shared object file')"


class Case(NamedTuple):
    """What is installed, what is pinned, and what comes of it."""

    world: str
    pin: str
    #: The backend's name and torch's type of the device; `None` for an error, which has `words`.
    chosen: tuple[str, str] | None
    words: str = ""


FOO, BAR, NPU, MLU = (
    ("generic", "foo"),
    ("generic", "bar"),
    ("npu", "npu"),
    ("mlu", "mlu"),
)
CASES = [
    Case("two unknown", "foo", FOO),
    Case("two unknown", "bar", BAR),
    Case("two unknown", "generic@torch-foo", FOO),
    Case("two unknown", "generic@torch-bar", BAR),
    Case("two unknown", "", BAR),
    Case("unknown and broken", "foo", FOO),
    Case("unknown and broken", "bar", None, "torch-bar 1.0 fails when torch loads it"),
    Case("unknown and broken", "", FOO),
    Case("two known", "npu", NPU),
    Case("two known", "mlu", MLU),
    Case("two known", "", NPU),
    Case("known and broken", "npu", NPU),
    Case("known and broken", "mlu", None, "torch_mlu failed: OSError: libmlu.so"),
    Case("known and broken", "", NPU),
]
#: Devices and what their packages do.
WORLDS = {
    "two unknown": {"foo": BRINGS, "bar": BRINGS},
    "unknown and broken": {"foo": BRINGS, "bar": BREAKS},
    "two known": {"npu": BRINGS_AT_IMPORT, "mlu": BRINGS_AT_IMPORT},
    "known and broken": {"npu": BRINGS_AT_IMPORT, "mlu": BREAKS},
}
PRIORITIES = {"npu": 700, "mlu": 300}

each = pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case.world}, {case.pin or 'no pin'}"
)


def install(world, name):
    """Install the packages of a world, and the plugins of those that are known."""
    for device, source in WORLDS[name].items():
        announced = {"torch.backends": {device: f"torch_{device}:_autoload"}}
        world.module(f"torch_{device}", source.format(device=device))
        world.distribution(f"torch-{device}", "1.0", announced)
        if device in PRIORITIES:
            world.backend(
                device,
                PRIORITIES[device],
                vendor_import=f"torch_{device}",
                accelerator="",
                torch_integration=TorchIntegration(private_use1=True),
            )


#: How a program asks, each in a process of its own.
ASKS = {
    "get_accelerator": "accel_core.get_accelerator()",
    "accelerator()": "accel_core.accelerator({pin!r})",
    "use_accelerator": "accel_core.use_accelerator({pin!r}).__enter__()",
}
PROGRAM = """
import json, sys
import accel_core
try:
    found = {ask}
except accel_core.AccelError as error:
    answer = {{"error": str(error)}}
else:
    answer = {{"chosen": [found.name, found.device().type]}}
answer["imported"] = sorted(name for name in sys.modules if name.startswith("torch_"))
print(json.dumps(answer))
"""


@each
@pytest.mark.parametrize("ask", ASKS)
def test_a_program_gets_the_pinned_device_or_an_error(torch_world, case, ask):
    install(torch_world, case.world)
    if not case.pin and ask != "get_accelerator":
        pytest.skip("these name what they ask for")
    variables = {"DS_ACCELERATOR": case.pin} if ask == "get_accelerator" else {}
    code = PROGRAM.format(ask=ASKS[ask].format(pin=case.pin))
    answer = torch_world.child(code, variables=variables, strict=False).answer
    if case.chosen is None:
        assert case.words in answer["error"]
    else:
        assert answer["chosen"] == list(case.chosen)
    if case.pin:
        meant = case.pin.rpartition("-")[2]
        assert answer["imported"] in ([], [f"torch_{meant}"])


@each
def test_the_commands_say_what_a_program_gets(accel, torch_world, case):
    install(torch_world, case.world)
    pin = {"DS_ACCELERATOR": case.pin} if case.pin else {}
    listed, why = (
        json.loads(accel(command, "--json", **pin).stdout)
        for command in ("list", "why")
    )
    if case.chosen is None:
        assert listed["chosen"] is None
        assert why["chosen"] is None
        assert case.words in listed["problem"]
        return
    name, device = case.chosen
    assert listed["chosen"] == name
    assert why["chosen"] == name
    assert why["distribution"] == (
        f"torch-{device}" if name == "generic" else f"accel-{device}"
    )


@pytest.mark.parametrize(("device", "status"), [("foo", "usable"), ("bar", "broken")])
def test_why_knows_a_device_by_torchs_type(accel, torch_world, device, status):
    install(torch_world, "unknown and broken")
    document = accel.json("why", device, status=0 if status == "usable" else 1)
    assert [(b["distribution"], b["status"]) for b in document["backends"]] == [
        (f"torch-{device}", status)
    ]


def test_a_package_that_brings_another_type_than_was_pinned_is_an_error(torch_world):
    torch_world.module("torch_foo", BRINGS.format(device="other"))
    torch_world.distribution(
        "torch-foo", "1.0", {"torch.backends": {"foo": "torch_foo:_autoload"}}
    )
    code = PROGRAM.format(ask="accel_core.get_accelerator()")
    refused = torch_world.child(code, variables={"DS_ACCELERATOR": "foo"}).answer
    assert (
        "torch-foo 1.0 registers the device type 'other', not 'foo'. "
        "Next step: set DS_ACCELERATOR=generic@torch-foo." in refused["error"]
    )
    followed = torch_world.child(
        code, variables={"DS_ACCELERATOR": "generic@torch-foo"}
    ).answer
    assert followed["chosen"] == ["generic", "other"]


def test_a_device_that_came_first_keeps_the_slot_and_the_step_frees_it(torch_world):
    install(torch_world, "two unknown")
    ask = "accel_core.get_accelerator()"
    code = f"import torch, torch_bar\ntorch_bar._autoload()\n{PROGRAM.format(ask=ask)}"
    refused = torch_world.child(code, variables={"DS_ACCELERATOR": "foo"}).answer
    assert (
        "torch's one PrivateUse1 slot is held by bar in this process"
        in refused["error"]
    )
    assert "set DS_ACCELERATOR=generic@torch-foo" in refused["error"]
    assert "torch_foo" not in refused["imported"]


def test_generic_alone_does_not_say_which_of_two_is_meant(torch_world):
    install(torch_world, "two unknown")
    code = PROGRAM.format(ask="accel_core.get_accelerator()")
    refused = torch_world.child(code, variables={"DS_ACCELERATOR": "generic"}).answer
    assert "Next step: use generic@torch-bar or generic@torch-foo." in refused["error"]


def test_one_device_has_one_object_by_all_its_names(torch_world):
    install(torch_world, "two unknown")
    code = """
import accel_core, json
found = accel_core.get_accelerator()
again = [accel_core.accelerator(name) for name in ("bar", "bar:0", "generic@torch-bar")]
print(json.dumps([each is found for each in again]))
"""
    assert torch_world.child(code).answer == [True, True, True]
