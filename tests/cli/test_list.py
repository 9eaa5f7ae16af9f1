"""`accel list`, as a user runs it."""

import re

import pytest
from accel_tests.plugins import NO_DEVICE, arguments, declaring

import accel_core
from accel_core.backend import Hardware


def line_of(text, name):
    """The row of the backend `name`, in the form of a pipe: one line."""
    return next(line for line in text.splitlines() if line[2:].startswith(f"{name} "))


def test_lists_a_third_party_backend_with_all_that_is_known(accel):
    accel.install("npu", priority=995, distribution="someone-npu", version="3.1")
    done = accel("list", "--all").succeeded()
    row = line_of(done.stdout, "npu")
    assert row.split() == [
        "*",
        "npu",
        "3.1",
        "someone-npu",
        "995",
        "json",
        "usable",
        "2",
        "devices",
        "counted",
    ]
    assert (
        "* npu would be used (the usable backend with the highest priority)."
        in done.stdout
    )
    assert line_of(done.stdout, "cpu")


def test_json_holds_every_backend_in_rank_order(accel, backend):
    accel.install("aaa", priority=5)
    accel.install("zzz", priority=995)
    document = accel.json("list")
    assert [b["name"] for b in document["backends"]] == ["zzz", "generic", "aaa", "cpu"]
    assert [b["marked"] for b in document["backends"]] == [True, False, False, False]
    assert document["chosen"] == "zzz"
    assert document["how"] == "ranked"
    assert document["torch"] == "2.99.0+simulated"


BRINGS = """
import torch, types
torch.foo = types.ModuleType("torch.foo")
torch.foo.device_count = lambda: 3
torch.accelerator.current = "foo"
"""


def test_a_package_that_announces_nothing_is_imported_first_for_every_command(
    accel, backend
):
    """Issue 23: nothing but the package's import brings its device, and nobody knew of it."""
    accel.world.module("torch_foo", BRINGS)
    assert accel.json("list")["chosen"] == "cpu"
    document = accel.json("--import", "torch_foo", "list")
    assert document["chosen"] == "generic"
    assert backend(document, "generic")["devices"] == 3
    for words in (["why", "generic"], ["info"], ["doctor", "--topic", "candidates"]):
        done = accel("--import", "torch_foo", *words)
        assert "generic" in done.stdout.partition("\n")[0], done.stdout + done.stderr
    wrong = accel("--import", "torch_fooo", "list")
    assert wrong.returncode == 2
    assert "The module 'torch_fooo' is not installed. " in wrong.stderr


def test_a_reason_in_a_pipe_is_one_line_and_whole(accel):
    long = "the driver is too old " * 12
    accel.install(
        "npu", f"ProbeResult(False, {long!r} + chr(10) + 'second line', 'update it')"
    )
    row = line_of(accel("list").stdout, "npu")
    assert " ".join(long.split()) + " second line; next step: update it" in row


def test_escape_codes_do_not_reach_who_prints_our_errors(
    torch_world, accel, monkeypatch
):
    """Nor line ends, with which a plugin would write lines in our name."""
    evil, safe = (
        "red \x1b]0;title\x07\nnpu: usable",
        r"red \x1b]0;title\x07 npu: usable",
    )
    accel.install("npu", f"ProbeResult(False, {evil!r}, {evil!r})")
    assert safe in accel("list").stdout
    with pytest.warns(accel_core.AcceleratorFallbackWarning) as caught:
        accel_core.get_accelerator()
    texts = [str(caught[0].message), str(accel_core.selection())]
    accel_core.set_accelerator(None)
    monkeypatch.setenv("DS_ACCELERATOR", "npu")
    for act in (lambda: accel_core.accelerator("npu"), accel_core.get_accelerator):
        with pytest.raises(accel_core.BackendUnavailableError) as refused:
            act()
        texts.append(str(refused.value))
    assert [text for text in texts if safe not in text or "\x1b" in text] == []
    log = str(accel_core.LaunchError("a\x1b[31m log\nof lines"))
    assert log == r"a\x1b[31m log" + "\nof lines"


def test_no_probe_asks_no_plugin(accel, backend):
    accel.install("npu", "1 / 0")
    document = accel.json("list", "--no-probe")
    assert backend(document, "npu")["status"] == "not_probed"
    assert document["chosen"] is None
    assert "were not probed" in accel("list", "--no-probe").stdout


PINS = {
    " NPU@Accel_Npu ": "* pinned by DS_ACCELERATOR=' NPU@Accel_Npu '. Details: `accel why`",
    "gone,off,npu": "* preferred by DS_ACCELERATOR='gone,off,npu'",
    "off": "* The backend that DS_ACCELERATOR='off' pins cannot be used",
    "bare": (
        "* pinned by DS_ACCELERATOR='bare'. Programs use this backend, although its "
        "status is 'no device'."
    ),
    "gone": "DS_ACCELERATOR='gone' matches no backend that can be chosen",
}


def test_a_note_says_what_a_pin_did(accel):
    accel.install("top", priority=999)
    accel.install("npu", priority=1)
    accel.install("off", "ProbeResult(False, 'switched off', deferred=True)")
    accel.world.backend("bare", extra=NO_DEVICE)
    for pin, note in PINS.items():
        assert note in accel("list", DS_ACCELERATOR=pin).stdout


def test_nothing_usable_is_said(accel):
    refused = "No backend would be chosen: The settings exclude every usable backend. Details: `accel why`."
    assert refused in accel("list", ACCEL_ALLOW="nothing").stdout


@pytest.mark.parametrize(
    "arguments", [["list"], ["list", "--no-probe"], ["why", "npu"]], ids=" ".join
)
def test_this_process_imports_neither_torch_nor_a_vendor(accel, arguments):
    accel.world.module("vendor_of_ours", "")
    accel.world.backend("npu", 990, vendor_import="vendor_of_ours")
    done = accel(*arguments, watched=frozenset({"torch", "vendor_of_ours"}))
    assert done.stderr.endswith("loaded: []")


def test_a_name_is_for_why(accel):
    done = accel("list", "npu")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.endswith(
        "Error: accel list does not accept a name. For one backend, run: accel why npu\n"
    )


@pytest.mark.parametrize("columns", ["1", "many", "40", "200"])
def test_a_page_is_as_wide_as_asked_and_whole(accel, columns):
    name, distribution = (
        "a_backend_with_a_very_long_name",
        "its-distribution-is-long-too",
    )
    accel.install(
        name,
        f"ProbeResult(False, {'reason ' * 30!r}, 'the last word')",
        distribution=distribution,
    )
    lines = accel("list", "--all", COLUMNS=columns).stdout.splitlines()
    assert columns not in ("40", "200") or max(map(len, lines)) <= int(columns)
    text = " ".join(" ".join(lines).split())
    assert text.count("reason") == 30
    assert "the last word" in text
    if (
        columns == "200"
    ):  # a name that is too long is folded, not cut: its letters are in its column
        column = slice(lines[0].index("VERSION"))
        assert "".join(line[column].strip() for line in lines[1:]).startswith(name)


def test_without_torch_it_lists_all_the_same_and_says_what_to_do(accel, backend):
    accel.install("npu")
    for name in ("one", "two"):
        accel.world.backend(name, vendor_import="torch")
    document = accel.json("list", torch=False)
    assert document["torch"] is None
    assert backend(document, "cpu")["status"] == "not_installed"
    done = accel("list", torch=False).succeeded()
    assert (
        "torch is not installed, so no backend can be used. Next step: " in done.stdout
    )
    assert "Need torch: one, two, generic, cpu." in " ".join(done.stdout.split())


def test_without_torch_the_next_step_is_said_once(accel):
    said = accel("list", torch=False).succeeded().stdout
    assert said.count("accel setup") == 1
    assert "Need torch: generic, cpu." in said
    assert "details: `accel why`" not in said
    pinned = accel("list", torch=False, DS_ACCELERATOR="cpu").stdout
    assert "The backend that DS_ACCELERATOR='cpu' pins cannot be used" in " ".join(
        pinned.split()
    )


HERE, GONE = ("/dev/null",), ("/dev/acme[0-9]*",)


@pytest.fixture
def machine(accel):
    """A machine on which one device works, one is broken, one lacks its package, and four are not there."""
    accel.install("works", description="somebody's card")
    for name, nodes, package, hardware in (
        ("there", HERE, "torch_there", "Acme NPU"),
        ("first", GONE, "json", "Acme GPU"),
        ("second", GONE, "json", "Other GPU"),
    ):
        accel.world.backend(
            name,
            500,
            hardware=Hardware(hardware, nodes=nodes, pci_ids=("fade/03",)),
            vendor_import=package,
            install_hint=f"pip install {package}",
        )
    accel.world.plugin("bad", "raise ImportError('libbad.so')")
    for name in ("one", "two", "three"):
        accel.world.backend(
            name, 400, vendor_import=f"torch_{name}", install_hint="pip install it"
        )
    return accel


@pytest.mark.parametrize("columns", ["", "20", "80"])
def test_what_serves_is_first_then_what_is_broken_then_what_is_not_here(
    machine, columns
):
    said = machine("list", COLUMNS=columns).stdout
    names = [
        line[2:].split()[0]
        for line in said.splitlines()
        if re.match(r"(\* |  )\w", line)
    ]
    order = [
        name
        for name in names
        if name in ("works", "cpu", "there", "bad", "first", "second", "one")
    ]
    assert order[:6] == ["works", "cpu", "there", "bad", "first", "second"]
    words = " ".join(said.split())
    for told in (
        "* works usable 2 devices counted: somebody's card",
        "torch_there is not installed, though the hardware is present",
        "next step: pip install torch_there",
        "libbad.so",
        "no Acme GPU found",
        "Vendor's package not installed: one, three, two.",
        "* works would be used",
        "accel list --all",
    ):
        assert told in words
    assert "/dev/" not in said
    assert "PCI" not in said
    assert "generic" not in said
    if columns in ("60", "80", "160"):
        assert max(map(len, said.splitlines())) <= int(columns)


def test_nodes_and_ids_are_told_where_they_are_asked_for(machine):
    for words in (["list", "--all"], ["why", "first"]):
        said = machine(*words).stdout
        assert "/dev/acme[0-9]*" in said
        assert "PCI fade/03" in said
    why = machine("why").stdout
    assert "first (accel-first 1.0, priority 500): no device: no Acme GPU found" in why
    assert "Vendor's package not installed: one, three, two" in why
    assert "[0-9]" not in why
    assert "PCI" not in why


def test_declarations_of_one_backend_share_a_row(accel):
    ways = [
        arguments(
            "acme", 9 - n, hardware=Hardware(made, nodes=GONE, pci_ids=(f"fad{n}",))
        )
        for n, made in enumerate(("Acme GPU", "Other GPU", "Acme NPU"))
    ]
    accel.world.plugin("acme", declaring(*ways))
    rows = [
        line for line in accel("list").stdout.splitlines() if line.startswith("  acme")
    ]
    assert [" ".join(row.split()) for row in rows] == [
        "acme no device no Acme or Other GPU, no Acme NPU found"
    ]


BUILT_FOR_ANOTHER = "torch 2.99.0+simulated is a CPU build, without ROCm"


@pytest.fixture
def two_makers(accel):
    """`two_makers(nodes)`: acme by two makers, of which torch is built for the first; nodes of the second."""

    def install(nodes):
        first = Hardware("Acme GPU", nodes=HERE)
        second = Hardware("Other GPU", nodes=nodes)
        step = {"install_hint": "pip install it"}
        ways = [
            arguments(
                "acme",
                9,
                hardware=first,
                torch_integration=accel_core.TorchIntegration(),
                **step,
            ),
            arguments(
                "acme",
                8,
                hardware=second,
                torch_integration=accel_core.TorchIntegration(builds=("hip",)),
                **step,
            ),
        ]
        accel.world.plugin("acme", declaring(*ways) + NO_DEVICE)
        return accel

    return install


@pytest.mark.parametrize(
    ("nodes", "names"),
    [((), ["acme"]), (("/dev/zero",), ["acme (Acme GPU)", "acme (Other GPU)"])],
    ids=["one", "both"],
)
def test_of_the_makers_that_share_a_name_those_that_are_here_are_listed(
    two_makers, nodes, names
):
    """torch is built for the one, and nobody need read about the other, unless that is here too."""
    listed = two_makers(nodes)("list").stdout
    rows = [
        re.split("  +", row[2:])[0] for row in listed.splitlines() if row[2:6] == "acme"
    ]
    assert rows == names


@pytest.mark.parametrize("nodes", [(), ("/dev/zero",)], ids=["one", "both"])
def test_every_maker_is_listed_with_all(two_makers, nodes):
    every = two_makers(nodes)("list", "--all").stdout
    assert "acme (Acme GPU) " in every
    assert "acme (Other GPU) " in every


def fall_backs_warning():
    with pytest.warns(accel_core.AcceleratorFallbackWarning) as caught:
        accel_core.get_accelerator()
    return str(caught[0].message)


def test_why_and_the_warning_leave_out_a_maker_that_is_not_here(
    torch_world, two_makers
):
    accel = two_makers(())
    for text in (
        accel("why").stdout,
        accel("why", "acme").stdout,
        fall_backs_warning(),
    ):
        assert "nothing on the bus" in text
        assert BUILT_FOR_ANOTHER not in text


def test_why_and_the_warning_tell_makers_that_are_both_here_apart(
    torch_world, two_makers
):
    accel = two_makers(("/dev/zero",))
    why, warning = accel("why").stdout, fall_backs_warning()
    for text in (why, accel("why", "acme").stdout, warning):
        assert "nothing on the bus" in text
        assert BUILT_FOR_ANOTHER in text
    assert (
        "-  acme (Other GPU, accel-acme 1.0, priority 8): no device: torch 2.99" in why
    )
    assert "acme (Other GPU, accel-acme 1.0): no device: torch 2.99" in warning


@pytest.mark.parametrize("nodes", [(), ("/dev/zero",)], ids=["one", "both"])
def test_why_a_shared_name_shows_the_maker_that_is_here(two_makers, nodes):
    of_acme = two_makers(nodes)("why", "acme").stdout
    assert "acme (Acme GPU, accel-acme 1.0): no device" in of_acme


def test_an_address_in_a_hint_is_not_torn(accel):
    address = "https://example.org/" + "a_long_way/" * 5
    accel.install("npu", f"ProbeResult(False, 'switched off', 'see {address}')")
    assert address in accel("list", COLUMNS="80").stdout


def test_so_few_that_lack_a_package_that_each_says_what_to_do(accel):
    accel.world.backend(
        "one", vendor_import="torch_one", install_hint="pip install torch-one"
    )
    said = accel("list").stdout
    assert (
        "not installed  torch_one is not installed; next step: pip install torch-one"
        in said
    )
