"""The real torch_npu on the stand-in for CANN: what is its own or the plugin's, in `checks/`."""

import pytest
from checks.run import OWN, names
from stand_in.children import run


@pytest.fixture(scope="module")
def failures(stand_in):
    """What failed of the checks, all in one process."""
    code = "from checks.run import OWN, main; main(*OWN)"
    return run(code, cann=stand_in, DS_ACCELERATOR="npu").answer


@pytest.mark.parametrize("name", [name for module in OWN for name in names(module)])
def test_check(failures, name):
    assert name not in failures, failures[name]


def test_bfloat16_is_asked_of_the_device(stand_in):
    """An older chip has none; the one of the other checks has."""
    environ = {"DS_ACCELERATOR": "npu", "STANDIN_SOC": "Ascend910PremiumA"}
    code = "from checks.run import main; main('dtypes', only='check_which_types_the_device_has')"
    assert run(code, cann=stand_in, **environ).answer == {}


CHOOSE = "import accel_core, json; acc = accel_core.get_accelerator()\n"


def test_it_is_chosen_when_there_is_a_card(with_cann):
    code = (
        "from accel_core.hardware import bus\n"
        "bus.device_nodes = lambda *_: ('/dev/davinci0', '/dev/davinci1')\n"
        f"{CHOOSE}s = accel_core.selection()\n"
        "(npu,) = [v for v in s.verdicts if v.name == 'npu']\n"
        "print(json.dumps([acc.name, s.how.value, acc.is_initialized(), npu.devices]))"
    )
    assert with_cann(code).answer == ["npu", "ranked", False, 2]


VISIBLE = [
    (None, 2, None), ("0", 1, [0]), ("1", 1, [1]), ("0,1", 2, [0, 1]), ("1,0", 0, []), ("0, 1", 1, [0]),
    ("", 0, []),
]  # fmt: skip


def test_visible_devices_mean_what_torch_npu_makes_of_them(with_cann):
    """In a process of its own for each value: what is counted once stays."""
    code = CHOOSE + (
        "import os\n"
        "from accel_testing.conformance.forks import run_in_fork\n"
        "def ask(value):\n"
        "    if value is not None: os.environ['ASCEND_RT_VISIBLE_DEVICES'] = value\n"
        "    return json.dumps([acc.device_count(), acc.visible_device_ids()])\n"
        f"values = {[value for value, *_ in VISIBLE]!r}\n"
        "print(json.dumps([json.loads(run_in_fork(lambda v=v: ask(v), 60)[0]) for v in values]))"
    )
    assert with_cann(code, DS_ACCELERATOR="npu").answer == [
        told for _, *told in VISIBLE
    ]


def test_no_devices(with_cann):
    """The package works and the machine has no card: a pin is honoured all the same."""
    code = (
        f"{CHOOSE}flags = acc.capabilities().to_dict()\n"
        "import torch\n"
        "print(json.dumps([acc.name, acc.device_count(), acc.is_available(), acc.create_graph(),\n"
        "    [n for n, f in flags.items() if f], [str(d) for d in acc.supported_dtypes()],\n"
        "    acc.register_host_memory(4096, 4096), torch.npu.is_initialized()]))"
    )
    answer = with_cann(code, DS_ACCELERATOR="npu", STANDIN_DEVICES="0").answer
    flags = ["supports_nvtx_domain"]
    assert answer == ["npu", 0, False, None, flags, ["torch.float32"], False, False]


def test_counting_before_a_fork(with_cann):
    """The count is the driver's, so a child may use the device afterwards; after use, a child may not."""
    code = CHOOSE + (
        "import multiprocessing, sys, torch\n"
        "sys.path.append('.')\n"
        "def use(queue):\n"
        "    try: queue.put(torch.ones(2, device='npu').sum().item())\n"
        "    except RuntimeError as error: queue.put(str(error).split('.')[0])\n"
        "def child():\n"
        "    context = multiprocessing.get_context('fork')\n"
        "    queue = context.Queue()\n"
        "    process = context.Process(target=use, args=(queue,))\n"
        "    process.start(); answer = queue.get(timeout=60); process.join(); return answer\n"
        "acc.device_count(); acc.is_available()\n"
        "before = child(); torch.ones(1, device='npu').cpu(); after = child()\n"
        "print(json.dumps([before, after]))"
    )
    before, after = with_cann(code, DS_ACCELERATOR="npu").answer
    assert before == 2.0
    assert after == "Cannot re-initialize NPU in forked subprocess"
