"""Variables of visible devices, composed: what is left, what has no effect, and what to write instead."""

import re
import shlex
from dataclasses import replace
from typing import NamedTuple

import pytest
from accel_tests.asking import counts_none
from accel_tests.computers import Computer
from hypothesis import given, settings
from hypothesis import strategies as st

from accel_core.backend import Backend, Hardware, TorchIntegration, Visibility
from accel_core.explain import reasons
from accel_core.hardware import visible_devices
from accel_core.hardware.visible_devices import (
    Inventory,
    VisibleDevices,
    inventory,
    read_visible_devices,
)
from accel_core.verdict import Verdict
from accel_train.launch.launch import visibility_report

ROCR, HIP, CUDA = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"
NVIDIA = Backend(
    name="cuda", priority=200, device_type="cuda", visibility=Visibility((CUDA,), grammar="cuda"),
    hardware=Hardware(nodes=("/dev/nvidia[0-9]*",)), torch_integration=TorchIntegration(builds=("cuda",)),
)  # fmt: skip
AMD = replace(NVIDIA,
    visibility=Visibility((HIP, CUDA), filters=(ROCR,), grammar="cuda"),
    hardware=Hardware(nodes=("/dev/kfd",), pci_ids=("1002/03",)),
    torch_integration=TorchIntegration(builds=("hip",)),
)  # fmt: skip
ASCEND = replace(NVIDIA, visibility=Visibility((CUDA,), grammar="ascending"))
INTEL = replace(NVIDIA, visibility=Visibility((CUDA,), grammar="level-zero"))
GAUDI = replace(NVIDIA, visibility=Visibility((CUDA,), grammar="modules"))
MLU = replace(NVIDIA, visibility=Visibility((CUDA,), grammar="mlu"))
PLAIN = replace(NVIDIA, visibility=Visibility((CUDA,), grammar="indices"))
UUIDS = ("GPU-1a2b3c4d-0000", "GPU-1a2b3c99-0000", "GPU-77777777-0000")
MLU_UUIDS = (
    "12345678-1234-1234-1234-1234567890ab",
    "9abcdef0-1234-1234-1234-1234567890ab",
)
MIGS = (
    "MIG-6482a92e-d06b-5c68-a272-e3d8f7ecabbf",
    "MIG-7482a92e-d06b-5c68-a272-e3d8f7ecabbf",
)

ONE_MIG = "CUDA shows a process only the first MIG instance; start one process for each instance"

#: Devices that there are, or their UUIDs, a value, what is seen, what is said of the rest, and what to write.
VALUES = [
    (NVIDIA, 1, "0,1", (0,), "there is no device 1", "0"),
    (NVIDIA, 16, "1,10", (1, 10), "", ""),
    (NVIDIA, 4, "1,9,0", (1,), "there is no device 9; the entries after 9 are not read: 0", "1,0"),
    (NVIDIA, None, "0,99", (0, 99), "", ""),  # nobody knows how many there are
    (NVIDIA, None, "GPU-1a2b,0", ("GPU-1a2b",), "'0' ends the list", "GPU-1a2b"),
    (NVIDIA, 1, ",".join(MIGS), MIGS[:1], ONE_MIG, MIGS[0]),
    (ASCEND, 4, "1,7,8", (1,), "there is no device 7; the entries after 7 are not read: 8", "1"),
    (ASCEND, 4, "3, 1,3", (3,), "' 1,3' ends the list", "1,3"),
    (ASCEND, 4, "2,1", (), "the ids must ascend", "1,2"),
    (INTEL, 2, "2,1,0.1", ("0.1", 1), "there is no device 2", "0.1,1"),
    (INTEL, 2, "", (0, 1), "", ""),  # no mask to Intel
    (GAUDI, 2, "6,7", (6, 7), "", ""),  # modules, no indices
    (MLU, 2, "7", (), "there is no device 7", "0,1"),
    (PLAIN, None, "x,2,y,0", None, "", "2,0"),
    (NVIDIA, UUIDS, "GPU-7,GPU-1A2B3C4", (UUIDS[2], UUIDS[0]), "", ""),
    (NVIDIA, UUIDS, "GPU-7,GPU-77", (), f"{UUIDS[2]} is listed twice", UUIDS[2]),
    (NVIDIA, UUIDS, "GPU-1a2b3c4,GPU-5,GPU-7", UUIDS[:1],
     f"there is no device GPU-5; the entries after GPU-5 are not read: {UUIDS[2]}", f"{UUIDS[0]},{UUIDS[2]}"),
    (NVIDIA, UUIDS, "GPU-7,GPU-1a", UUIDS[2:], "GPU-1a is the beginning of 2 UUIDs", UUIDS[2]),
    (NVIDIA, 3, "GPU-5", ("GPU-5",), "", ""),  # nobody knows
    (NVIDIA, UUIDS, "MIG-5", ("MIG-5",), "", ""),  # of a part of a GPU only the driver knows
    (NVIDIA, 3, f"GPU-8932f937,{UUIDS[0]}", ("GPU-8932f937", UUIDS[0]), "", ""),  # short and whole
    (MLU, 2, ",".join(MLU_UUIDS), MLU_UUIDS, "", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("backend", "count", "value", "seen", "lost", "better"), VALUES
)
def test_one_variable(backend, count, value, seen, lost, better):
    present = (
        Inventory(len(count), (), count)
        if isinstance(count, tuple)
        else Inventory(count)
    )
    found = read_visible_devices(backend, {CUDA: value}, present)
    [effect] = found.effects
    assert read_visible_devices(backend, {}, present) == VisibleDevices()
    assert found.devices == seen
    assert effect.ignored == lost
    assert effect.suggestion == better
    assert bool(effect.malformed) == (seen is None and value != "")


#: AMD's: variables on a machine with four; what is seen, what is said, and the next step.
COMPOSED = [
    ({ROCR: "1", CUDA: "1"}, (),
     f"{CUDA}='1' hides every device: there is no device 1 among the devices that {ROCR} leaves visible",
     f"export {CUDA}=0"),
    ({ROCR: "7", HIP: "0"}, (), f"{ROCR}='7' hides every device: there is no device 7",
     f"export {ROCR}=0,1,2,3"),
    ({ROCR: "3,1", HIP: "0,3"}, (3,),
     f"{HIP}='0,3': there is no device 3 among the devices that {ROCR} leaves visible",
     f"export {HIP}=0"),
]  # fmt: skip


@pytest.mark.parametrize(("environ", "seen", "said", "step"), COMPOSED)
def test_a_filter_first_and_the_other_counts_among_what_is_left(
    environ, seen, said, step
):
    found = read_visible_devices(AMD, environ, Inventory(4))
    assert found.devices == seen
    assert str(found) == said
    assert (found.faulty and found.next_step) == (step or [])


#: Issues on GitHub: what was set, on how many devices of whose, what is seen, and the next step.
REPORTS = {
    "mcmonkeyprojects/SwarmUI#565": (AMD, 2, {ROCR: "1", HIP: "1"}, (), f"{HIP}=0"),
    "vllm-project/vllm#12572": (AMD, 8, {ROCR: "1", CUDA: "0,1"}, (1,), f"{CUDA}=0"),
    "ray-project/ray#53737": (AMD, 1, {ROCR: "0", HIP: "0"}, (0,), ""),
    "ray-project/ray#52701": (AMD, 2, {CUDA: "1"}, (1,), ""),
    "verl-project/verl#1575": (
        AMD,
        8,
        {HIP: "0,1,2,4", CUDA: "4,5,6"},
        (0, 1, 2, 4),
        "",
    ),
    "FlagAI-Open/Aquila2#132": (NVIDIA, 8, {CUDA: "4,3"}, (4, 3), ""),
    "maudzung/RTM3D#11": (NVIDIA, 4, {CUDA: "5"}, (), f"{CUDA}=0,1,2,3"),
    "huggingface/optimum-habana#1089": (GAUDI, 2, {CUDA: "2,3"}, (2, 3), ""),
    "huggingface/optimum-habana#1108": (GAUDI, 2, {CUDA: "4,0"}, (4, 0), ""),
    "deepspeedai/DeepSpeed#5818": (NVIDIA, 4, {CUDA: "0,2"}, (0, 2), ""),
    "deepspeedai/DeepSpeed#2976": (NVIDIA, 8, {CUDA: "0,1,6,7"}, (0, 1, 6, 7), ""),
    "deepspeedai/DeepSpeed#5278": (
        NVIDIA,
        2,
        {CUDA: "GPU-8932f937"},
        ("GPU-8932f937",),
        "",
    ),
    "huggingface/accelerate#663": (NVIDIA, 8, {CUDA: "2,4,5,7"}, (2, 4, 5, 7), ""),
    "gpustack/gpustack#3352": (ASCEND, 2, {CUDA: "4"}, (), f"{CUDA}=0,1"),
    "pytorch/examples#115": (NVIDIA, 2, {CUDA: "2"}, (), f"{CUDA}=0,1"),
    "thuml/Time-Series-Library#10": (NVIDIA, 1, {CUDA: "2"}, (), f"{CUDA}=0"),
    "undertherain/benchmarker#47": (NVIDIA, 2, {CUDA: "-1"}, (), f"{CUDA}=0,1"),
    "pytorch/pytorch#178496": (INTEL, 2, {CUDA: "0.0, 0.1"}, ("0.0", "0.1"), ""),
}


@pytest.mark.parametrize("report", REPORTS)
def test_masks_from_bug_reports_leave_the_devices_that_people_saw(report):
    backend, count, environ, seen, step = REPORTS[report]
    found = read_visible_devices(backend, environ, Inventory(count))
    assert found.devices == seen
    assert (found.faulty and found.next_step) == (f"export {step}" if step else [])
    assert [e.variable for e in found.effects if e.overruled_by] == [CUDA] * (
        {CUDA, HIP} <= environ.keys()
    )


# --- On a machine ---------------------------------------------------------------------------------------


def built(machine, kind: str, count: int, numbers=None, uuids=()) -> Backend:
    """Give the machine so many devices."""
    for at, uuid in enumerate(uuids if kind == "nvidia" else ()):
        path = f"proc/driver/nvidia/gpus/0000:{64 + at:02x}:00.0/information"
        machine.write(path, f"Model: \t H100\nGPU UUID: \t {uuid}\n")
    if kind == "nvidia":
        for number in numbers or range(count):
            machine.write(f"dev/nvidia{number}")
        return NVIDIA
    machine.write("dev/kfd")
    for number in range(count):
        machine.write(f"dev/dri/renderD{128 + number}")
        machine.pci(f"0000:{16 + number:02x}:00.0", "1002", "740f", "038000")
    return AMD


def test_the_inventory_has_the_numbers_and_uuids_of_the_devices_that_are_there(machine):
    amd = built(machine, "amd", 3)  # before the bus is read, once for each process
    nvidia = built(machine, "nvidia", 2, (0, 3), (UUIDS[0], UUIDS[2]))
    assert inventory(nvidia, machine.path) == Inventory(2, (0, 3), (UUIDS[0], UUIDS[2]))
    assert inventory(amd, machine.path) == Inventory(3)
    assert (
        inventory(PLAIN, machine.path) == Inventory()
    )  # a card may be several devices


class World(NamedTuple):
    """A machine, and the variables that a process on it has."""

    kind: str
    count: int
    #: Of the device nodes: a container shows the host's third GPU alone, a host misses a broken one.
    numbers: list[int]
    uuids: list[str]
    container: bool
    both: bool
    environ: dict[str, str]

    def counted(self, environ: dict[str, str]) -> list[object]:
        """As the runtimes: CUDA's and ROCm's documents, not our reading of them."""
        seen: list[object] = list(range(self.count))
        names = (
            [ROCR, HIP if HIP in environ else CUDA] if self.kind == "amd" else [CUDA]
        )
        for value in (environ[name] for name in names if name in environ):
            if value.startswith("MIG-"):
                return [value.split(",")[0]]
            left: list[object] = []
            for entry in value.split(","):
                named = self._named(entry, seen)
                if len(named) != 1 or entry.startswith("GPU-") != value.startswith(
                    "GPU-"
                ):
                    break
                if named[0] in left:
                    left = []
                    break
                left += named
            seen = left
        return seen

    def _named(self, entry: str, seen: list[object] | range) -> list[object] | range:
        """The devices that an entry may mean: CUDA takes the beginning of a UUID that is one GPU's."""
        if entry.isdecimal():
            return seen[int(entry) :][:1]
        fits = [
            at
            for at, uuid in enumerate(self.uuids)
            if uuid.lower().startswith(entry.lower())
        ]
        return [at for at in fits if at in seen] if entry.startswith("GPU-") else []

    @property
    def meant(self) -> set[object]:
        """The devices in the one variable: by number, by the host's number, by UUID."""
        entries = self.environ.get(CUDA, "").split(",")
        numbers = [int(e) for e in entries if e.isdecimal()]
        if (
            any(n >= self.count for n in numbers)
            and {*numbers} <= {*self.numbers}
            and "GPU" not in str(entries)
        ):
            return {self.numbers.index(n) for n in numbers}
        named = [
            (e[:4], at[0])
            for e in entries
            if len(at := self._named(e, range(self.count))) == 1
        ]
        return {
            at
            for kind, at in named
            if kind.startswith("G") == named[0][0].startswith("G")
        }


ENTRY = st.sampled_from(["0", "1", "2", "3", "7", "8", "15", "-1", "x", ""])
_DRAWN = st.integers(0, 0xFFFF).map("GPU-1a2b{:04x}-0000-4000".format)


@st.composite
def worlds(draw) -> World:
    kind, count = (
        draw(st.sampled_from(["nvidia", "amd", "mig", "uuids"])),
        draw(st.integers(1, 8)),
    )
    container, numbers = draw(st.booleans()), list(range(count))
    if draw(st.booleans()):
        numbers = sorted(
            draw(st.sets(st.integers(0, 15), min_size=count, max_size=count))
        )
    uuids = draw(st.lists(_DRAWN, min_size=count, max_size=count, unique=True))
    values = st.lists(ENTRY, max_size=4).map(",".join)
    environ = draw(
        st.dictionaries(
            st.sampled_from([ROCR, HIP, CUDA]), values, min_size=1, max_size=3
        )
    )
    if kind in ("uuids", "amd") and (kind == "uuids" or draw(st.booleans())):
        whole = st.sampled_from(
            uuids
        )  # of AMD's nobody tells us which exist, and so all do
        cut = st.tuples(whole, st.sampled_from([8, 9, 10, 11, 12])).map(
            lambda c: c[0][: c[1]]
        )
        one = (
            st.one_of(whole, ENTRY)
            if kind == "amd"
            else st.one_of(whole, cut, _DRAWN, ENTRY)
        )
        environ[ROCR if kind == "amd" else CUDA] = ",".join(
            draw(st.lists(one, min_size=1, max_size=4))
        )
    if kind == "mig":
        environ[CUDA] = ",".join(
            draw(st.lists(st.sampled_from(MIGS), min_size=1, unique=True))
        )
    return World(kind, count, numbers, uuids, container, draw(st.booleans()), environ)


class Judged(NamedTuple):
    """A world on disk, what its runtime counts, and what is said of its masks."""

    backend: Backend
    present: Inventory
    counted: list[object]
    found: VisibleDevices
    of_launcher: dict[str, str]
    verdict: Verdict


def judged(world, tmp_path_factory) -> Judged:
    machine = Computer(tmp_path_factory.mktemp("machine"))
    if world.container:
        machine.write(".dockerenv")
    maker, other = ("amd", "nvidia") if world.kind == "amd" else ("nvidia", "amd")
    if world.both:
        built(machine, other, 2)
    backend = built(machine, maker, world.count, world.numbers, world.uuids)
    present = inventory(backend, machine.path)
    counted = world.counted(world.environ)
    with pytest.MonkeyPatch.context() as patch:
        for module in (visible_devices, reasons):
            patch.setattr(module, "inventory", lambda *_: present)
        patch.setattr("os.environ", world.environ)
        of_launcher = visibility_report(backend, world.environ, len(counted))
        verdict = counts_none(backend, machine.path)
    found = read_visible_devices(backend, world.environ, present)
    return Judged(backend, present, counted, found, of_launcher, verdict)


def check_the_launcher_says_of_faulty_masks_what_the_judge_says(world, case):
    text, step = "", ""
    if case.found.faulty:
        text = "; ".join(map(str, case.found.faulty))
        step = case.found.next_step
    assert case.of_launcher["visibility_problem"] == text
    assert case.of_launcher["visibility_problem_step"] == step


def check_without_the_variables_that_limit_them_all_devices_are_counted(world, case):
    unset = case.of_launcher["visibility_limit_step"].split()[1:]
    if unset:
        left = {
            name: value for name, value in world.environ.items() if name not in unset
        }
        assert len(case.counted) < world.count
        assert len(world.counted(left)) == world.count, unset


def check_masks_without_a_fault_leave_the_devices_that_the_runtime_counts(world, case):
    if not case.found.faulty:
        assert case.counted
        ids = case.counted if case.found.devices is None else [*case.found.devices]
        assert len(ids) == len(case.counted)
        if all(isinstance(item, int) for item in ids):
            assert ids == case.counted


def check_where_masks_hide_every_device_the_verdict_says_so(world, case):
    """Whatever the container's step would be."""
    if case.found.faulty and not case.counted:
        assert case.verdict.reason == str(case.found)
        assert case.verdict.hint == case.found.next_step


def check_a_device_that_is_said_to_be_missing_is_not_there(world, case):
    if case.found.faulty:
        text = str(case.found)
        for named in re.findall(r"there is no device (\d+)\b(?! among)", text):
            assert int(named) >= world.count


def check_after_the_step_the_devices_that_were_meant_are_counted(world, case):
    if case.found.faulty:
        command, *changes = shlex.split(case.found.next_step)
        assert command == "export"
        after = world.environ | dict(change.split("=", 1) for change in changes)
        now = world.counted(after)
        assert now, (case.found.next_step, after)
        if world.kind in ("nvidia", "uuids") and world.meant:
            assert set(now) == world.meant, (case.found.next_step, after)
        else:
            assert set(case.counted) <= set(now), (case.found.next_step, after)
        assert not read_visible_devices(case.backend, after, case.present).faulty


CHECKS = (
    check_without_the_variables_that_limit_them_all_devices_are_counted,
    check_masks_without_a_fault_leave_the_devices_that_the_runtime_counts,
    check_after_the_step_the_devices_that_were_meant_are_counted,
    check_the_launcher_says_of_faulty_masks_what_the_judge_says,
    check_where_masks_hide_every_device_the_verdict_says_so,
    check_a_device_that_is_said_to_be_missing_is_not_there,
)


# One test, as the worlds on disk take its time.
@settings(max_examples=300, deadline=None)
@given(world=worlds())
def test_words_about_masks_are_true_and_their_step_helps(tmp_path_factory, world):
    case = judged(world, tmp_path_factory)
    for check in CHECKS:
        check(world, case)
