"""The real torch_npu on the stand-in for CANN: what is its own or the plugin's, by `checks/own.py`."""

import pytest
from checks.run import names
from stand_in.children import run

RUN = "from checks.run import main; main('own', *{!r})"


@pytest.fixture(scope="module")
def failures(stand_in):
    """What failed of the checks, all in one process."""
    return run(RUN.format(()), cann=stand_in, DS_ACCELERATOR="npu").answer


@pytest.mark.parametrize("name", names("own"))
def test_check(failures, name):
    assert name not in failures, failures[name]


def test_bfloat16_is_asked_of_the_device(stand_in):
    """An older chip has none; the one of the other checks has."""
    environ = {"DS_ACCELERATOR": "npu", "STANDIN_SOC": "Ascend910PremiumA"}
    code = RUN.format(["check_what_the_device_says"])
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


# --- what torch_npu refuses, and what we make of it --------------------------------------------------------


REFUSED = (
    "import accel_core, json\n"
    "try: accel_core.accelerator('npu')\n"
    "except accel_core.BackendUnavailableError as error: print(json.dumps(str(error)))"
)


HOMES = [
    (None, ("HOME",), "does not exist"),
    ((), ("HOME",), "ASCEND_OPP_PATH environment variable is not set"),
    (("compiler",), ("HOME", "OPP"), "ASCEND_RUNTIME_PATH"),
    (("runtime",), ("HOME", "OPP"), "ASCEND_COMPILER_PATH"),
]


@pytest.mark.parametrize(("folders", "names", "words"), HOMES)
def test_a_home_that_is_not_whole(with_cann, tmp_path, folders, names, words):
    home = tmp_path / "cann"
    for folder in () if folders is None else (".", *folders):
        (home / folder).mkdir(parents=True)
    variables = {f"ASCEND_{name}_PATH": str(home) for name in names}
    message = with_cann(REFUSED, **variables).answer
    assert words in message
    assert "set_env.sh" in message


def test_a_whole_home_is_reported(with_cann, tmp_path):
    for part in ("runtime", "compiler", "x86_64-linux"):
        (tmp_path / part).mkdir()
    info = tmp_path / "x86_64-linux" / "ascend_toolkit_install.info"
    info.write_text(
        "package_name=Ascend-cann-toolkit\nversion=8.3.RC1\ninnerversion=V100R001C23\n"
    )
    code = (
        CHOOSE
        + "import accel_npu; print(json.dumps([acc.toolkit(), accel_npu.cann_version()]))"
    )
    home = {"ASCEND_HOME_PATH": str(tmp_path), "ASCEND_OPP_PATH": str(tmp_path)}
    answer = with_cann(
        code, DS_ACCELERATOR="npu", STANDIN_CANN="8.3.RC1", **home
    ).answer
    assert answer == [{"CANN": "8.3.RC1", "ASCEND_HOME_PATH": str(tmp_path)}, "8.3.RC1"]


def test_another_accelerator_in_torch(with_cann):
    code = "import accel_core\nfrom accel_core.torch_import import import_torch\n"
    code += "torch = import_torch()\n"
    code += "torch._C._get_accelerator = lambda *_: torch.device('cuda')\n" + REFUSED
    message = with_cann(code).answer
    assert (
        "Two accelerators cannot be used at the same time in PyTorch: npu and cuda"
        in message
    )
    assert "accel setup npu" in message


def test_a_cann_that_lacks_a_function(with_cann, stand_in, tmp_path):
    """As an older CANN does; the stand-in is built again without it."""
    from stand_in import build

    older = build.built(tmp_path, without=("aclAppLog",))
    message = with_cann(REFUSED, LD_LIBRARY_PATH=str(older)).answer
    assert "undefined symbol: aclAppLog" in message
    assert "does not fit torch_npu 2.13.0: accel setup npu" in message
