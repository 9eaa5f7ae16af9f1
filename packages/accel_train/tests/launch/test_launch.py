"""What a launcher starts: the plan, each rank's device and cores, and the variables that other hosts get."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
from accel_tests.plugins import ACCELERATOR, arguments, declaring
from hypothesis import given
from hypothesis import strategies as st

import accel_train
from accel_core import (
    Backend,
    Environment,
    Hardware,
    ResourceRequest,
    Visibility,
    accelerator,
)
from accel_core.errors import (
    BackendNotFoundError,
    BackendUnavailableError,
    LaunchError,
    SettingError,
)
from accel_train import as_deepspeed, as_shell, forwarded
from accel_train.launch import command_line, formats, launch
from accel_train.launch.cores import (
    format_ranges,
    numa_nodes,
    parse_ranges,
    physical_cores,
)
from accel_train.launch.environment import pin_of
from accel_train.launch.plan import Cores, Machine, assign_cores, describe, plan_ranks

# ---------------------------------------------------------------------------- launch
# What `accel run` asks the accelerator, and what it plans for each rank.


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
        ("None", [], "cannot determine device ids from ACE_VISIBLE_MODULES"),
    ],
)
def test_where_no_variable_is_set_the_vendor_is_asked_for_ids_that_are_no_indices(
    cards, ids, alone, reason
):
    source = (
        ACCELERATOR.format(count="return 2")
        + f"    def _every_id(self):\n        return {ids}\n"
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
        machine.single_device_error == "CN_VISIBLE_DEVICES has 1 of 2 device ids: (1,)"
    )
    cards.backend("bare", 990)
    assert (
        launch.examine_machine(None).single_device_error
        == "bare has no visible-devices variable"
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
    told = r"^late \(accel-late 1.0\): the child process that called it exited with status 7 at: device_count"
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
                "--nproc-per-node 4: 4 ranks but 2 mlu devices. Start at most 2, or choose another",
            ),
            ("2", 1, "2 ranks but 1 mlu device. Start at most 1"),
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
            LaunchError, match=r"train\.py: no such script in .*For a module use -m"
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


# ---------------------------------------------------------------------------- cores
# Which cores each rank gets, from a `/sys` of the test's own making.


@pytest.fixture
def machine(computer):
    """Write a machine's `/sys`: NUMA nodes, and which cores are hyper-threads of one."""

    def write(nodes=None, siblings=None):
        for node, text in (nodes or {}).items():
            computer.write(f"sys/devices/system/node/node{node}/cpulist", f"{text}\n")
        for core, text in (siblings or {}).items():
            computer.write(
                f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list",
                f"{text}\n",
            )
        return computer.path

    return write


def ids(shares):
    return [share.ids for share in shares]


def test_ranks_go_to_the_node_of_their_device_and_share_it(machine):
    root = machine({0: "0-3", 1: "4-7"})
    shares = assign_cores([1, 1, 0, None], range(8), root)
    assert ids(shares) == [(4,), (5,), (0, 1, 2, 3), (6, 7)]
    assert [share.node for share in shares] == [1, 1, 0, 1]
    assert sum(share.threads for share in shares) == 8


def test_ranks_without_a_known_node_are_spread_over_all_nodes(machine):
    root = machine({0: "0-3", 1: "4-7"})
    assert assign_cores([None] * 2, range(8), root) == [
        Cores((0, 1, 2, 3), 4, 0),
        Cores((4, 5, 6, 7), 4, 1),
    ]
    assert ids(assign_cores([None] * 4, range(8), root)) == [
        (0, 1),
        (2, 3),
        (4, 5),
        (6, 7),
    ]
    assert ids(assign_cores([None], range(8), root)) == [(0, 1, 2, 3)]


def test_hyper_threads_of_a_core_stay_together_and_count_once(machine):
    root = machine(
        {0: "0-7"}, {core: f"{core % 4},{core % 4 + 4}" for core in range(8)}
    )
    assert assign_cores([0, 0], range(8), root) == [
        Cores((0, 1, 4, 5), 2, 0),
        Cores((2, 3, 6, 7), 2, 0),
    ]
    assert physical_cores({7, 2, 3, 9}, root) == [(2,), (3, 7), (9,)]


def test_only_allowed_cores_are_given(machine):
    root = machine({0: "0-3", 1: "4-7"})
    assert ids(assign_cores([0, 1], {2, 3, 5}, root)) == [(2, 3), (5,)]
    # The device's node has no core that is allowed: the rank goes where there are some.
    assert ids(assign_cores([0], {5, 6}, root)) == [(5, 6)]


def test_more_ranks_than_cores_share_them_all(machine):
    assert (
        assign_cores([None] * 3, range(2), machine({0: "0-1"}))
        == [Cores((0, 1), 1, 0)] * 3
    )


def test_a_quota_of_the_control_group_limits_the_threads_not_the_cores(machine):
    root = machine({0: "0-15"})
    assert [
        share.threads for share in assign_cores([0, 0], range(16), root, quota=6.0)
    ] == [3, 3]
    assert [
        share.threads for share in assign_cores([0, 0], range(16), root, quota=0.5)
    ] == [1, 1]


@pytest.mark.parametrize(
    "text", ["", "nonsense", "3-1", "0-", "1,,2", "0-99999999", "-1", "0-3\n4"]
)
def test_malformed_files_count_as_absent(machine, text):
    root = machine({0: text}, {0: text})
    assert numa_nodes(root) == {}
    assert ids(assign_cores([None, None], range(4), root)) == [(0, 1), (2, 3)]


@given(st.integers(1, 12), st.sets(st.integers(0, 63), min_size=1))
def test_no_core_is_lost_and_none_is_given_twice_where_there_are_enough(count, allowed):
    shares = assign_cores([None] * count, allowed, "/nonexistent")
    given_out = [core for share in shares for core in share.ids]
    assert set(given_out) == allowed
    if count <= len(allowed):
        assert len(given_out) == len(allowed)
        sizes = sorted(len(share.ids) for share in shares)
        assert sizes[-1] - sizes[0] <= 1
    assert all(share.threads >= 1 for share in shares)


@given(st.lists(st.integers(0, 500), unique=True).map(sorted))
def test_ranges_are_read_as_they_are_written(numbers):
    assert parse_ranges(format_ranges(numbers)) == (tuple(numbers) or None)


def test_only_folders_of_nodes_with_cores_are_nodes(machine):
    """The third has memory only, as with CXL or HBM."""
    assert numa_nodes(machine({0: "0-1", 1: "2", 2: "", "s": "3", "": "4"})) == {
        0: (0, 1),
        1: (2,),
    }


# ---------------------------------------------------------------------------- environment
# The variables for ranks on other hosts, and the forms in which launchers take them.


ENVIRON = {
    "CARD_LOG": "1", "CARD_VISIBLE_DEVICES": "0,1", "CCL_ROOT": "/opt/ccl", "PYTHONPATH": "/home/me/src",
    "ACCEL_STRICT": "1", "DS_ACCELERATOR": "card,cpu", "GLOO_SOCKET_IFNAME": "eth0", "HOME": "/home/me",
    "OMP_NUM_THREADS": "8", "TORCHELASTIC_RUN_ID": "job", "RANK": "3", "CARD_f%%": "() { :; }",
}  # fmt: skip
FIELDS = {
    "visibility": Visibility(("CARD_VISIBLE_DEVICES",)),
    "environment": Environment(("CARD", "CCL")),
}


@pytest.fixture
def card(torch_world):
    torch_world.backend("card", **FIELDS)
    return accelerator("card")


def test_what_the_backend_and_every_backend_needs_is_forwarded_and_nothing_else(
    card, monkeypatch
):
    assert forwarded(card, ENVIRON) == {
        "ACCEL_STRICT": "1", "CARD_LOG": "1", "CCL_ROOT": "/opt/ccl", "DS_ACCELERATOR": "card",
        "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "8", "PYTHONPATH": "/home/me/src",
    }  # fmt: skip
    assert list(forwarded(card, ENVIRON)) == sorted(forwarded(card, ENVIRON))
    monkeypatch.setenv("CARD_OWN", "yes")
    assert forwarded(card)["CARD_OWN"] == "yes"


@pytest.mark.parametrize("prefixes", [[""], "NCCL", ["CARD", "A_"], [None]])
def test_a_class_that_exports_the_whole_environment_is_refused(
    card, monkeypatch, prefixes
):
    """A declaration is checked; a class has its own export_envs(), a framework's too."""
    monkeypatch.setattr(type(card), "export_envs", lambda self: prefixes)
    if prefixes == "NCCL":  # one prefix, not its letters
        assert "CARD_LOG" not in forwarded(card, {**ENVIRON, "NAME": "x"})
        return
    with pytest.raises(
        LaunchError,
        match=r"^export_envs\(\) of card returned .*, expected a prefix of three",
    ):
        forwarded(card, {**ENVIRON, "MY_SECRET": "x"})


def test_what_the_vendor_wants_set_goes_too_unless_it_is_set(torch_world):
    environment = Environment(("CARD", "CCL"), defaults=("CARD_LOG=0", "CARD_MODE=a=b"))
    torch_world.backend("card", **{**FIELDS, "environment": environment})
    card = accelerator("card")
    given = forwarded(card, ENVIRON)
    assert given["CARD_LOG"] == "1"
    assert given["CARD_MODE"] == "a=b"


def test_a_name_that_two_distributions_declare_is_pinned_with_its_distribution(
    torch_world,
):
    torch_world.backend("card")
    torch_world.plugin("card", declaring(arguments("card")), distribution="other-card")
    assert pin_of(accelerator("card@other-card")) == "card@other-card"
    assert pin_of(accelerator("cpu")) == "cpu"


@pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell")
@pytest.mark.parametrize(
    "value",
    [
        *(
            "plain",
            "two words",
            "it's",
            'say "x"',
            "$HOME `id` \\",
            "two\nlines",
            "",
            "ü",
            "a,b",
        ),
        os.fsdecode(b"\xff\xfe it's \x80\nline\xe9"),
    ],
)
def test_a_shell_gets_every_value_as_it_is(value):
    script = as_shell({"SOME_VALUE": value})
    assert (
        script.isascii()
    )  # text that no locale on the way alters, whatever the value's bytes are
    show = f"{sys.executable} -c \"import os, json; print(json.dumps(os.environ['SOME_VALUE']))\""
    done = subprocess.run(
        ["sh", "-c", f"{script}\n{show}"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == value


def test_deepspeeds_file_holds_what_deepspeed_reads_back():
    text = as_deepspeed({"A": "1", "B": "two words", "C": "x=y"})
    assert text == "A=1\nB=two words\nC=x=y"


@pytest.mark.parametrize(
    "value",
    [
        *("two\nlines", "a\r", 'say "x"', "$HOME", "`id`", "back\\slash", " space"),
        *("eth0,eth1", "caf\udce9", "two\x0blines"),
    ],
)
def test_what_deepspeeds_file_cannot_hold_is_refused(value):
    with pytest.raises(LaunchError, match=r"^BAD: values in \.deepspeed_env cannot"):
        as_deepspeed({"GOOD": "1", "BAD": value})


def test_the_packages_names_are_resolved_when_used():
    assert set(accel_train.__all__) <= set(dir(accel_train))
    with pytest.raises(
        AttributeError, match=r"module 'accel_train' has no attribute 'missing'"
    ):
        accel_train.missing  # noqa: B018


# ---------------------------------------------------------------------------- formats
# What Ray, Slurm and Docker get: each value arrives, or is refused by name.


PLAIN = {"DS_ACCELERATOR": "card", "CARD_LOG": "/var/log:2,3".replace(",", ":")}
ODD = {
    "CARD_A": 'it\'s "quoted" `here` \\ !',
    "CARD_B": "two\nlines\n",
    "CARD_C": "größer ☃",
    "CARD_D": " a, b ",
    "CARD_E": "",
}
#: A byte that is not UTF-8, as Python keeps it.
BYTES = {"CARD_F": "caf\udce9"}
RAY, SLURM = (
    r"^CARD_X: Ray replaces .* or use --format shell\.$",
    r"^CARD_X: Slurm's --export",
)


def declared(**fields):
    return Backend(name="card", priority=1, device_type="card", **fields)


def test_ray_gets_one_object_of_texts():
    assert json.loads(formats.as_ray({**PLAIN, **ODD})) == {
        "env_vars": {**PLAIN, **ODD}
    }


@pytest.mark.skipif(sys.platform == "win32", reason="Ray's rule is the platform's")
def test_what_ray_gets_it_does_not_alter(monkeypatch):
    """It calls `os.path.expandvars` on each."""
    monkeypatch.setenv("b", "altered")
    given = {"CARD_X": "100 $, $(b), $-", **ODD}
    for name, value in json.loads(formats.as_ray(given))["env_vars"].items():
        assert os.path.expandvars(value) == given[name]


def test_slurm_gets_a_line_of_its_words():
    line = formats.as_slurm(PLAIN)
    assert line == "#SBATCH --export=ALL,DS_ACCELERATOR=card,CARD_LOG=/var/log:2:3"


@pytest.mark.parametrize(
    ("write", "value", "said"),
    [
        *(
            (formats.as_ray, value, RAY)
            for value in ("$HOME/x", "${HOME}", "a$b", *BYTES.values())
        ),
        *(
            (formats.as_slurm, value, SLURM)
            for value in (*filter(None, ODD.values()), *BYTES.values())
        ),
        *((formats.as_slurm, value, SLURM) for value in ("a b", "a#b", "$HOME", "a\r")),
    ],
)
def test_what_a_launcher_would_split_or_alter_is_refused(write, value, said):
    with pytest.raises(LaunchError, match=said):
        write({**PLAIN, "CARD_X": value})


def words(text):
    """What a shell makes of the words, in a locale without any of the characters."""
    shell = [
        "sh",
        "-c",
        'eval "set -- $1"; for word; do printf "%s\\0" "$word"; done',
        "sh",
        text,
    ]
    done = subprocess.run(
        shell, capture_output=True, check=True, env={"LC_ALL": "C", "PATH": os.defpath}
    )
    return done.stdout.split(b"\0")[:-1]


@pytest.mark.skipif(os.name != "posix", reason="a POSIX shell")
def test_docker_gets_the_devices_and_every_value():
    backend = declared(request=ResourceRequest(docker="--gpus all --ipc=host"))
    given = {**PLAIN, **ODD, **BYTES}
    flags = words(formats.as_docker(given, backend))
    expected = [
        part for name, value in given.items() for part in ("-e", f"{name}={value}")
    ]
    assert flags == [
        os.fsencode(word) for word in ("--gpus", "all", "--ipc=host", *expected)
    ]


def test_every_device_of_this_host_stands_for_the_first(tmp_path):
    for number in range(3):
        (tmp_path / f"card{number}").touch()
    (tmp_path / "card_control").touch()
    backend = declared(
        hardware=Hardware(nodes=(f"{tmp_path}/card[0-9]*",)),
        request=ResourceRequest(
            docker=f"--device {tmp_path}/card0 --device {tmp_path}/card_control"
        ),
    )
    flags = formats.container_flags(backend)
    assert flags[1::2] == [
        f"{tmp_path}/{name}" for name in ("card0", "card1", "card2", "card_control")
    ]
    assert set(flags[::2]) == {"--device"}


def test_the_tests_of_transformers_get_a_module(torch_world, tmp_path):
    torch_world.backend("card")
    written = formats.as_transformers_spec("card")
    spec = {}
    exec(compile(written, "accel_spec.py", "exec"), spec)  # as they import it
    assert spec["DEVICE_NAME"] == "card"
    assert all(
        callable(spec[f"{name}_FN"])
        for name in ("MANUAL_SEED", "EMPTY_CACHE", "DEVICE_COUNT")
    )
