"""What a launch asks a child process, and the plan of ranks."""

import os
from importlib.util import find_spec

import pytest
from accel_tests.plugins import ACCELERATOR

from accel_core import (
    Visibility,
)
from accel_core.errors import (
    BackendNotFoundError,
    BackendUnavailableError,
    LaunchError,
    SettingError,
)
from accel_train.launch import command_line, launch
from accel_train.launch.plan import Machine, describe, plan_ranks

NEEDS_TORCHRUN = pytest.mark.skipif(
    not find_spec("torch"), reason="torchrun is torch's"
)
UUIDS = [f"MLU-{n}1111111-2222-3333-4444-555555555555" for n in range(2)]


# --- asking ---------------------------------------------------------------------------------------------


@pytest.fixture
def cards(torch_world, monkeypatch):
    """A machine with two cards of mlu, and a simulated torch."""
    monkeypatch.setenv("DS_ACCELERATOR", "")  # --backend sets it
    torch_world.backend(
        "mlu",
        visibility=Visibility(
            variables=("CN_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES"), grammar="mlu"
        ),
        communication_backend="cncl",
    )
    return torch_world


def test_the_child_tells_all_that_a_launch_needs(cards):
    machine = launch.examine_machine("mlu")
    assert machine == Machine(
        name="mlu", pin="mlu", origin="accel-mlu 1.0", is_cpu=False, device_count=2, communication="cncl",
        device_names=["mlu:0", "mlu:1"], pci_addresses=[None, None],
        single_device_env=[{"CN_VISIBLE_DEVICES": "0"}, {"CN_VISIBLE_DEVICES": "1"}],
        single_device_error="", warning="",
        import_variables={"ACCEL_IMPORT": "json"},  # its vendor import
    )  # fmt: skip
    assert os.environ["DS_ACCELERATOR"] == "mlu"


@pytest.mark.parametrize("ids", [["5", "3"], UUIDS, ["5", "3", "9"]])
def test_each_device_alone_has_the_id_that_the_vendor_knows(cards, monkeypatch, ids):
    monkeypatch.setenv("CN_VISIBLE_DEVICES", ",".join(ids))
    machine = launch.examine_machine(None)
    assert machine.single_device_env == [
        {"CN_VISIBLE_DEVICES": item} for item in ids[:2]
    ]
    few = (
        "CN_VISIBLE_DEVICES='5,3,9' names 3 devices, but the vendor's runtime reports 2"
    )
    assert (machine.visibility_problem, machine.visibility_problem_step) == (
        (few, "unset CN_VISIBLE_DEVICES") if ids[2:] else ("", "")
    )


@pytest.mark.parametrize(
    ("ids", "alone", "reason"),
    [
        ("(7, 3)", [{"ACE_VISIBLE_MODULES": "7"}, {"ACE_VISIBLE_MODULES": "3"}], ""),
        ("None", [], "the device ids cannot be determined from ACE_VISIBLE_MODULES"),
    ],
)
def test_where_no_variable_is_set_the_vendor_is_asked_for_ids_that_are_no_indices(
    cards, ids, alone, reason
):
    source = (
        ACCELERATOR.format(count="return 2")
        + f"    def _all_device_ids(self):\n        return {ids}\n"
    )
    source += (
        "    def device_properties(self, device_index=None):\n"
        "        from accel_core import DeviceProperties\n"
        "        return DeviceProperties(name='Card', pci_address='0000:3b:00.0')\n"
    )
    cards.module("ace_device", source)
    cards.backend(
        "ace", 990, accelerator="ace_device:Simulated",
        visibility=Visibility(variables=("ACE_VISIBLE_MODULES",), grammar="modules")
    )  # fmt: skip
    machine = launch.examine_machine(None)
    assert machine.single_device_env == alone
    assert machine.single_device_error == reason
    assert machine.pci_addresses == ["0000:3b:00.0"] * 2


def test_where_devices_cannot_be_shown_alone_the_reason_is_kept(cards, monkeypatch):
    monkeypatch.setenv("CN_VISIBLE_DEVICES", "1")
    machine = launch.examine_machine(None)
    assert machine.single_device_env == []
    assert (
        machine.single_device_error
        == "CN_VISIBLE_DEVICES contains only these device ids for 2 devices: (1,)"
    )
    cards.backend("bare", 990)
    assert (
        launch.examine_machine(None).single_device_error
        == "bare has no environment variable that selects the visible devices"
    )


def test_the_cpu_is_no_device_to_show_alone(cards):
    machine = launch.examine_machine("cpu")
    assert machine.is_cpu
    assert machine.single_device_env == []
    assert machine.single_device_error == ""
    assert len(machine.device_names) == machine.device_count >= 1


def test_what_a_choice_raises_is_raised_here(cards, monkeypatch):
    with pytest.raises(
        BackendNotFoundError, match="no installed distribution declares nowhere"
    ):
        launch.examine_machine("nowhere")
    with pytest.raises(
        LaunchError, match="--backend '@' is not valid, expected a backend name"
    ):
        launch.examine_machine("@")
    monkeypatch.setenv("ACCEL_PROBE", "sideways")
    with pytest.raises(SettingError, match="ACCEL_PROBE='sideways'"):
        launch.examine_machine("mlu")


def test_a_vendor_that_dies_or_hangs_when_it_is_asked_is_told(cards, monkeypatch):
    cards.module("dying_device", ACCELERATOR.format(count="import os; os._exit(7)"))
    cards.backend("dying", accelerator="dying_device:Simulated")
    told = r"^dying \(accel-dying 1.0\) is not usable: .* exited with status 7 at: device_count\(\) of"
    with pytest.raises(BackendUnavailableError, match=told):
        launch.examine_machine("dying")
    monkeypatch.setenv("ACCEL_PROBE_TIMEOUT", "5")
    cards.module(
        "hanging_device", ACCELERATOR.format(count="import time; time.sleep(60)")
    )
    cards.backend("hanging", accelerator="hanging_device:Simulated")
    with pytest.raises(
        BackendUnavailableError, match="no response within 5 s; last step: device_count"
    ):
        launch.examine_machine("hanging")


def test_a_plugin_that_dies_at_its_import_is_passed_over_and_told(cards):
    cards.plugin("bad", "import os; os._exit(7)")
    machine = launch.examine_machine(None)
    assert machine.name == "mlu"
    assert machine.device_count == 2
    assert machine.warning.startswith(
        "bad (accel-bad 1.0) is skipped: the process that loaded its plugin"
    )


def test_a_device_that_dies_after_it_was_chosen_is_told(cards):
    more = "    def device_name(self, device_index=None):\n        import os; os._exit(7)\n"
    cards.module("late_device", ACCELERATOR.format(count="return 1") + more)
    cards.backend("late", 990, accelerator="late_device:Simulated")
    told = r"^the child process that was using late \(accel-late 1.0\) exited with status 7 at: device_count"
    with pytest.raises(BackendUnavailableError, match=told):
        launch.examine_machine(None)


# --- planning -------------------------------------------------------------------------------------------

MACHINE = Machine(
    name="mlu", pin="mlu", origin="accel-mlu 1.0", is_cpu=False, device_count=2, communication="cncl",
    device_names=["mlu:0", "mlu:1"], pci_addresses=["0000:3b:00.0", "0000:af:00.0"],
    single_device_env=[{"CN_VISIBLE_DEVICES": item} for item in UUIDS], single_device_error="", warning="",
)  # fmt: skip
CPU = MACHINE._replace(
    name="cpu", origin="", is_cpu=True, device_count=2, single_device_env=[]
)


@pytest.fixture
def sixteen_cores(computer, monkeypatch):
    """A machine with two NUMA nodes, whose second one is near the first card."""
    for node, cores, card in ((0, "0-7", "0000:af:00.0"), (1, "8-15", "0000:3b:00.0")):
        computer.write(f"sys/devices/system/node/node{node}/cpulist", cores)
        computer.write(f"sys/bus/pci/devices/{card}/numa_node", str(node))
    monkeypatch.setattr(
        "accel_core.hardware.allowed_cores", lambda: frozenset(range(16))
    )
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    return computer.path


def plan(root, *arguments, machine=MACHINE):
    return plan_ranks(
        command_line.parse([*arguments, "train.py", "--lr", "1"]), machine, root
    )


@NEEDS_TORCHRUN
class TestPlan:
    """With torchrun's own parser."""

    def test_each_rank_gets_the_cores_near_its_device(self, sixteen_cores):
        assert plan(sixteen_cores) == [
            ("mlu:0", "8-15", {"OMP_NUM_THREADS": "8"}),
            ("mlu:1", "0-7", {"OMP_NUM_THREADS": "8"}),
        ]

    def test_ranks_on_the_cpu_are_spread_and_may_outnumber_its_nodes(
        self, sixteen_cores
    ):
        assert [p.cores for p in plan(sixteen_cores, machine=CPU)] == ["0-7", "8-15"]
        ranks = plan(
            sixteen_cores, "--nproc-per-node", "4", "--one-device-per-rank", machine=CPU
        )
        assert [(p.device, p.cores) for p in ranks] == [
            ("cpu", "0-3"), ("cpu", "4-7"), ("cpu", "8-11"), ("cpu", "12-15"),
        ]  # fmt: skip

    @pytest.mark.parametrize(
        "option",
        [
            ["--no-bind"],
            ["--numa-binding", "node"],
            ["--virtual-local-rank"],
            ["--run-path"],
        ],
    )
    def test_binding_is_left_to_others(self, sixteen_cores, option):
        try:
            command_line.parse([*option, "train.py"])
        except SystemExit:
            pytest.skip(f"this torchrun has no {option[0]}")
        assert [(p.cores, p.environment) for p in plan(sixteen_cores, *option)] == [
            ("", {}),
            ("", {}),
        ]

    def test_one_device_a_rank(self, sixteen_cores):
        ranks = plan(
            sixteen_cores, "--one-device-per-rank", "--no-bind", "--nproc-per-node", "2"
        )
        assert [p.environment for p in ranks] == MACHINE.single_device_env
        with pytest.raises(
            LaunchError, match="--one-device-per-rank is not possible: no variable"
        ):
            plan(
                sixteen_cores,
                "--one-device-per-rank",
                machine=MACHINE._replace(single_device_error="no variable"),
            )
        with pytest.raises(LaunchError, match="cannot be used with --run-path or"):
            plan(sixteen_cores, "--one-device-per-rank", "--run-path")

    def test_torchruns_own_variable_and_words_count(self, sixteen_cores, monkeypatch):
        assert len(plan(sixteen_cores, "--nproc-per-node", "cpu", machine=CPU)) >= 1
        monkeypatch.setenv("PET_NPROC_PER_NODE", "1")
        monkeypatch.setenv("OMP_NUM_THREADS", "3")  # which is kept
        assert [p.environment for p in plan(sixteen_cores)] == [{}]
        assert len(plan(sixteen_cores, "--nproc_per_node=auto")) == 2

    @pytest.mark.parametrize(
        ("wanted", "devices", "message"),
        [
            (
                "4",
                2,
                r"ranks \(4\) exceeds the number of mlu devices \(2\)\. Start .* or choose another",
            ),
            (
                "2",
                1,
                r"ranks \(2\) exceeds the number of mlu devices \(1\)\. Start no more ranks than",
            ),
            ("0", 2, "--nproc-per-node 0: expected 1 or more ranks"),
            (
                "many",
                2,
                "--nproc-per-node 'many' is not valid: .*Expected a number, or auto",
            ),
            ("auto", 0, "mlu has no device on this host, so no rank can be started"),
        ],
    )
    def test_what_is_refused(self, sixteen_cores, wanted, devices, message):
        with pytest.raises(LaunchError, match=message):
            plan(
                sixteen_cores,
                "--nproc-per-node",
                wanted,
                machine=MACHINE._replace(device_count=devices),
            )

    def test_the_script_must_be_there_where_it_is_a_file(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(
            LaunchError, match=r"train\.py: no such script in .*To run a module, use -m"
        ):
            launch.check_script(command_line.parse(["train.py"]))
        launch.check_script(command_line.parse(["-m", "train"]))
        launch.check_script(command_line.parse(["--no-python", "train"]))
        (tmp_path / "train.py").write_text("")
        launch.check_script(command_line.parse(["train.py"]))

    @pytest.mark.parametrize("option", ["--logs", "--t", "--nnodes", "-m", "--backend"])
    def test_what_follows_the_script_is_the_scripts(self, option):
        parsed = command_line.parse(["train.py", option, "x"])
        assert parsed.training_script == "train.py"
        assert parsed.training_script_args == [option, "x"]

    def test_an_option_is_not_abbreviated(self, capsys):
        with pytest.raises(SystemExit):
            command_line.parse(["--max-restart", "3", "train.py"])
        assert "Did you mean --max-restarts?" in capsys.readouterr().err

    def test_the_plan_is_told_in_words(self, sixteen_cores):
        arguments = command_line.parse(
            ["--nnodes", "2", "--communication-backend", "gloo", "train.py"]
        )
        wants = MACHINE._replace(defaults={"CARD_MODE": "0"})
        assert "all ranks: CARD_MODE=0 DS_ACCELERATOR=mlu" in describe(
            wants, arguments, []
        )
        text = describe(
            MACHINE, arguments, plan(sixteen_cores, "--one-device-per-rank")
        )
        assert text.splitlines() == [
            "mlu (accel-mlu 1.0) over gloo, 2 devices here, nodes 2",
            "all ranks: DS_ACCELERATOR=mlu ACCEL_COMMUNICATION_BACKEND=gloo ACCEL_INTEGRATIONS=auto",
            f"local rank 0: mlu:0, cores 8-15, CN_VISIBLE_DEVICES={UUIDS[0]} OMP_NUM_THREADS=8",
            f"local rank 1: mlu:1, cores 0-7, CN_VISIBLE_DEVICES={UUIDS[1]} OMP_NUM_THREADS=8",
        ]
