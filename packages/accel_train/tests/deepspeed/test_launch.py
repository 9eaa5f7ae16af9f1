"""DeepSpeed's real launcher, on this host and over stand-ins for other hosts: what its ranks run on."""

import os
import sys

import pytest
from accel_tests import layouts
from accel_tests.children import executable
from accel_tests.forks import forked
from accel_tests.ports import free_port
from patched import PATCHES

from accel_core.errors import AccelError

BY_NIGHT = pytest.mark.nightly(
    reason="the launcher's own options, and lists that it passes on as they are"
)
ACCEL = ["-m", "accel_core", "deepspeed"]
CPU_BY_NIGHT = pytest.param(
    "cpu", "gloo", marks=pytest.mark.nightly(reason="by day two ranks on a device")
)
BY_DEVICE = pytest.mark.parametrize(
    ("device", "backend"), [CPU_BY_NIGHT, ("acme", "accl")]
)


@pytest.fixture
def variables(request, device):
    found = request.getfixturevalue(f"on_{device}")
    return {
        name: value for name, value in found.items() if name != "CUDA_VISIBLE_DEVICES"
    }


@pytest.fixture
def folder(rank_program):
    return rank_program.parent


@pytest.fixture
def launch(child, folder):
    """`launch(options, environ)`: the ranks' answers, in order of rank."""

    def run(options, environ, script=("rank.py",)):
        port = ["--master_port", str(free_port())]
        ended = child([*ACCEL, *port, *options, *script], environ, cwd=folder)
        return sorted(ended.answers, key=lambda answer: answer["rank"])

    return run


def ranks(answers, **fields):
    return [answer["rank"] for answer in answers if fields.items() <= answer.items()]


@BY_DEVICE
def test_two_ranks_on_this_host(launch, variables, device, backend):
    answers = launch(
        ["--num_gpus", "2"], variables, script=("rank.py", "--epochs", "2")
    )
    assert ranks(
        answers, name=device, same=True, total=2.0, backend=backend, others=False
    ) == [0, 1]
    assert [a["arguments"] for a in answers] == [["--epochs", "2"]] * 2


@pytest.mark.parametrize(
    ("source", "passed"),
    [
        ("import sys; print('given', sys.argv[1:])", "['--epochs', '2']"),
        (
            "import sys; print('given', sys.argv[1:])  # --local_rank",
            "['--local_rank=0', '--epochs', '2']",
        ),
    ],
)
def test_local_rank_is_passed_to_a_script_that_knows_it(
    child, folder, on_cpu, source, passed
):
    (folder / "shows.py").write_text(source)
    words = ["--num_gpus", "1", "--master_port", str(free_port())]
    ended = child([*ACCEL, *words, "shows.py", "--epochs", "2"], on_cpu, cwd=folder)
    assert f"given {passed}" in ended.succeeded().stdout


VISIBLE = [
    pytest.param("0,1", [], "0,1", marks=BY_NIGHT),
    ("GPU-aaaa,GPU-bbbb", ["--include", "localhost:1"], "GPU-bbbb"),
]


@pytest.mark.parametrize("device", ["acme"])
@pytest.mark.parametrize(("given", "options", "seen"), VISIBLE)
def test_what_the_user_made_visible_stays_so(
    launch, variables, device, given, options, seen
):
    """DeepSpeed reads the value as integers; where it holds UUIDs, its slots are places in the list."""
    answers = launch(options, {**variables, "ACME_VISIBLE_DEVICES": given})
    assert [answer["visible"] for answer in answers] == [seen] * len(seen.split(","))


ENDS = [
    (
        "acme",
        {"ACME_VISIBLE_DEVICES": "GPU-a,GPU-b"},
        ["--num_gpus", "3", "rank.py"],
        1,
        "lists 2 devices",
    ),
    ("cpu", {}, ["--num_gpus", "1", "fails.py"], 5, ""),
    ("cpu", {}, ["--help"], 0, "--hostfile"),
    # Ranks that would not hear of the activation are not started.
    (
        "cpu",
        {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        ["--num_gpus", "1", "rank.py"],
        1,
        "Next step: unset TORCH_DEVICE_BACKEND_AUTOLOAD",
    ),
]


@pytest.mark.parametrize(("device", "more", "arguments", "status", "said"), ENDS)
def test_status_and_words(
    child, folder, variables, device, more, arguments, status, said
):
    (folder / "fails.py").write_text("import sys; sys.exit(5)")
    ended = child([*ACCEL, *arguments], {**variables, **more}, cwd=folder)
    assert ended.returncode == status
    assert said in ended.stdout + ended.stderr
    # DeepSpeed 0.16 logs to stdout before it.
    assert ("usage: accel deepspeed " in ended.stdout) == (arguments == ["--help"])
    if more.keys() == {"TORCH_DEVICE_BACKEND_AUTOLOAD"}:
        assert ended.stdout == ""
        assert "Traceback" not in ended.stderr


def test_an_installation_without_the_entry_point_is_found_out(monkeypatch):
    from accel_core import packages
    from accel_train.deepspeed import _child_activation

    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD", raising=False)
    assert _child_activation.missing_activation_reason() == ""
    installed = packages.entry_points
    for missing in ("torch.backends", "accel.integrations"):

        def without(group, missing=missing):
            return () if group == missing else installed(group)

        monkeypatch.setattr(packages, "entry_points", without)
        assert (
            f"entry point in the group {missing} is not installed"
            in _child_activation.missing_activation_reason()
        )
        assert (
            "Next step: install accel-train again"
            in _child_activation.missing_activation_reason()
        )


# --- several hosts --------------------------------------------------------------------------------------

#: What pdsh does, without the network: the command in a shell of each host, with a login's bare environment.
PDSH = """
import subprocess, sys
arguments = sys.argv[1:]
hosts = arguments[arguments.index("-w") + 1].split(",")
command = " ".join(arguments[arguments.index("-w") + 2:])
bare = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
commands = [command.replace("%n", str(number)) for number, _ in enumerate(hosts)]
running = [subprocess.Popen(["sh", "-c", each], env=bare) for each in commands]
sys.exit(max(process.wait() for process in running))
"""


@BY_DEVICE
def test_other_hosts_get_the_choice_and_the_activation(
    launch, variables, device, backend, folder
):
    """Their shells have nothing but what the launcher exports; on the CPU `import torch` is broken there."""
    variables = {**variables, "ACCEL_PROBE_TIMEOUT": "77"}
    if device == "cpu":
        groups = {"torch.backends": {"bad": "torch_bad:autoload"}}
        broken = {"torch_bad": "raise OSError('libbad')"}
        layouts.dist_info(folder / "more", "torch-bad", "1.0", groups, broken)
        variables = {**variables, "PYTHONPATH": str(folder / "more")}
    executable(folder / "bin" / "pdsh", PDSH, by=sys.executable)
    (folder / "hosts").write_text("one slots=1\ntwo slots=1\n")
    path = os.pathsep.join((str(folder / "bin"), variables["PATH"]))
    options = [
        "--hostfile",
        "hosts",
        "--launcher",
        "pdsh",
        "--master_addr",
        "127.0.0.1",
        "--no_ssh_check",
    ]
    answers = launch(options, {**variables, "PATH": path})
    seen = {
        "name": device,
        "same": True,
        "total": 2.0,
        "backend": backend,
        "timeout": "77",
    }
    assert ranks(answers, **seen) == [0, 1]
    assert [answer["node"] for answer in answers] == ["0", "1"]


# ---------------------------------------------------------------------------- patched
# DeepSpeed with the patches of lab/contrib/: which accelerator it finds by itself, without
# `activate()`. `training/test_training.py` trains on it.


#: The device that DeepSpeed has, and whose accelerator drives it.
ACME = ["acme", "ours"]
OUR_CPU = ["cpu", "ours"]
THEIR_CPU = ["cpu", "theirs"]
#: A vendor with a class of its own and nothing of ours; and one whose device is absent.
STRANGERS = """
from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

class Own(CPU_Accelerator):
    pass

def absent():
    return None
"""


@pytest.fixture(scope="session")
def copies(deepspeed_copy):
    """The folders of the patched copies, made before a fork takes one."""
    return {patch: str(deepspeed_copy(patch)) for patch in PATCHES}


class Patched:
    """A patched DeepSpeed, in a fork."""

    def __init__(self, copy):
        sys.path.insert(0, copy)
        import deepspeed
        from deepspeed.accelerator import real_accelerator

        assert deepspeed.__file__.startswith(copy)
        self.first, self.real = self.look(), real_accelerator
        self.known = [
            name
            for name in real_accelerator.SUPPORTED_ACCELERATOR_LIST
            if name != "acme"
        ]

    def look(self):
        """The device that it has, and whose accelerator that is."""
        import deepspeed
        from deepspeed import accelerator

        import accel_core

        theirs = deepspeed.get_accelerator()
        assert isinstance(theirs, accelerator.DeepSpeedAccelerator)
        assert accelerator.is_current_accelerator_supported()
        if not isinstance(theirs, accel_core.Accelerator):
            return [theirs.device_name(), "theirs"]
        same = theirs is accelerator.get_accelerator() is accel_core.get_accelerator()
        return [theirs.device_name(), "ours" if same else "another of ours"]

    def chosen(self, pin=None, **variables):
        """What a new process would choose: the modules stay, the choices are forgotten."""
        import accel_core

        os.environ.pop("ACCEL_INTEGRATIONS", None)
        os.environ.pop("DS_ACCELERATOR", None)
        os.environ.update(variables, **({} if pin is None else {"DS_ACCELERATOR": pin}))
        accel_core.set_accelerator(None)
        self.real.ds_accelerator = None
        self.real.SUPPORTED_ACCELERATOR_LIST[:] = self.known
        try:
            return self.look()
        except (AccelError, ValueError) as error:
            return [type(error).__name__, str(error)]


# --- by entry points: DeepSpeed asks the accelerators that are announced, and ours is one of them


@forked("acme")
def test_by_entry_points_the_first_choice_is_acme(copies):
    assert Patched(copies["entry points"]).first == ACME


@pytest.mark.parametrize(
    "pin",
    [None, "acme", " Acme", "nope,acme", "accel"],
    ids=["no pin", "a name", "its case and blanks aside", "a list", "the entry point"],
)
@forked("acme")
def test_by_entry_points_acme_is_chosen(copies, pin):
    assert Patched(copies["entry points"]).chosen(pin) == ACME


@forked("acme")
def test_by_entry_points_children_get_the_integration_in_place_of_the_entry_points_name(
    copies,
):
    """The name of the entry point means something to a patched DeepSpeed alone."""
    Patched(copies["entry points"]).chosen("accel")
    assert os.environ["ACCEL_INTEGRATIONS"] == "deepspeed"
    assert "DS_ACCELERATOR" not in os.environ


@forked("acme")
def test_by_entry_points_cpu_is_deepspeeds_unless_the_pin_names_our_distribution(
    copies,
):
    patched = Patched(copies["entry points"])
    assert patched.chosen("cpu") == THEIR_CPU
    assert patched.chosen("cpu@accel-core") == OUR_CPU


@forked("acme")
def test_by_entry_points_an_unknown_pin_is_refused_with_our_error(copies):
    error, message = Patched(copies["entry points"]).chosen("nope")
    assert error == "BackendNotFoundError"
    assert "DS_ACCELERATOR='nope'" in message


@forked("acme")
def test_by_entry_points_our_cpu_is_taken_only_where_a_parent_activated_the_integration(
    copies,
):
    patched = Patched(copies["entry points"])
    os.environ["ACCEL_BLOCK"] = "acme"
    assert patched.chosen() == THEIR_CPU
    assert patched.chosen(ACCEL_INTEGRATIONS="deepspeed") == OUR_CPU


@pytest.fixture
def strangers(tmp_path):
    """A folder with the accelerators of another distribution."""
    groups = {
        "deepspeed.accelerators": {"own": "strangers:Own", "absent": "strangers:absent"}
    }
    layouts.dist_info(
        tmp_path / "more", "strangers", "1.0", groups, {"strangers": STRANGERS}
    )
    return tmp_path / "more"


@forked("acme")
def test_by_entry_points_another_distributions_accelerator_is_taken_by_its_name(
    copies, strangers
):
    patched = Patched(copies["entry points"])
    os.environ["ACCEL_BLOCK"] = "acme"
    sys.path.insert(1, str(strangers))
    assert patched.chosen("own") == THEIR_CPU  # its class is DeepSpeed's for the CPU
    assert type(patched.real.get_accelerator()).__name__ == "Own"


@forked("acme")
def test_by_entry_points_an_accelerator_that_is_absent_is_refused_where_it_is_pinned(
    copies, strangers
):
    patched = Patched(copies["entry points"])
    os.environ["ACCEL_BLOCK"] = "acme"
    sys.path.insert(1, str(strangers))
    error, _ = patched.chosen("absent")
    assert error == "ValueError"


@forked("acme")
def test_by_entry_points_an_accelerator_that_is_absent_is_passed_over_without_a_pin(
    copies, strangers
):
    patched = Patched(copies["entry points"])
    os.environ["ACCEL_BLOCK"] = "acme"
    sys.path.insert(1, str(strangers))
    assert patched.chosen() == THEIR_CPU
    assert type(patched.real.get_accelerator()).__name__ == "Own"


# --- native: DeepSpeed asks accel-core. Its child processes need no entry point of torch's

NATIVE = forked("acme", TORCH_DEVICE_BACKEND_AUTOLOAD="0")


@NATIVE
def test_native_the_first_choice_is_acme_by_the_pin(copies):
    patched = Patched(copies["native"])
    import accel_core

    assert patched.first == ACME
    assert accel_core.selection().how.value == "pinned"


@NATIVE
def test_native_torchs_autoload_is_not_a_limit(copies):
    Patched(copies["native"])
    from accel_train.deepspeed import activate

    assert [limit for limit in activate().limits if "AUTOLOAD" in limit] == []


@NATIVE
def test_native_acme_is_chosen_without_a_pin_and_our_cpu_with_it(copies):
    patched = Patched(copies["native"])
    assert patched.chosen() == ACME
    assert patched.chosen("cpu") == OUR_CPU


@NATIVE
def test_native_an_unknown_pin_is_refused_with_our_error(copies):
    error, message = Patched(copies["native"]).chosen("nope")
    assert error == "BackendNotFoundError"
    assert "DS_ACCELERATOR='nope'" in message


@NATIVE
def test_native_deepspeeds_set_accelerator_takes_ours_everywhere(copies):
    patched = Patched(copies["native"])
    patched.chosen("cpu")
    import deepspeed
    from deepspeed.accelerator import set_accelerator

    import accel_core
    from accel_train.deepspeed import activate

    acme = accel_core.accelerator("acme")
    set_accelerator(acme)
    assert patched.look() == ACME
    assert activate().accelerator is acme
    assert deepspeed.runtime.engine.get_accelerator() is acme


@NATIVE
def test_native_deepspeeds_set_accelerator_turns_theirs_into_ours(copies):
    patched = Patched(copies["native"])
    from deepspeed.accelerator import set_accelerator
    from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

    from accel_train.deepspeed import activate

    set_accelerator(CPU_Accelerator())
    assert patched.look() == OUR_CPU
    assert activate().accelerator.device_name() == "cpu"


@NATIVE
def test_native_a_value_that_is_not_an_accelerator_is_refused_and_changes_nothing(
    copies,
):
    patched = Patched(copies["native"])
    from deepspeed.accelerator import set_accelerator

    with pytest.raises(TypeError, match="is not an accelerator"):
        set_accelerator(3)
    assert patched.look() == ACME
