"""Commands of other distributions: listed without importing them, and none costs another."""

import pytest

COMMAND = """
import click

@click.command("rack")
@click.argument("number", type=int)
def command(number):
    "Say which of the racks has a free device."
    click.echo(f"rack {number}")
"""


@pytest.fixture
def rack(accel):
    """Install a command `rack` of these sources, in distribution acme-commands 1.2."""

    def install(package="", module=COMMAND, name="rack"):
        accel.world.distribution(
            "acme-commands", "1.2", {"accel.commands": {name: "acme_commands"}}
        )
        accel.world.module("acme_commands.__init__", package)
        accel.world.module("acme_commands.rack", module)

    return install


def test_a_third_partys_command_is_listed_and_runs(accel, rack):
    rack()
    told = accel(
        "--help",
        torch=False,
        watched=frozenset({"acme_commands", "acme_commands.rack"}),
    )
    assert "rack A command of acme-commands 1.2." in " ".join(told.stdout.split())
    assert told.stderr == "loaded: []"
    assert accel("rack", "3", torch=False).stdout == "rack 3\n"
    wrong = accel("rack", "x", torch=False)
    assert wrong.returncode == 2
    assert "Usage: accel rack" in wrong.stderr


@pytest.mark.parametrize(
    ("package", "module", "said"),
    [
        (
            "raise OSError('libacme.so: cannot open')",
            COMMAND,
            "libacme.so: cannot open",
        ),
        ("import sys; sys.exit(3)", COMMAND, "acme-commands 1.2 cannot be used: "),
        (
            "",
            "import no_such_module_of_acme",
            "No module named 'no_such_module_of_acme'",
        ),
        ("", "", "acme_commands.rack"),
    ],
    ids=["package raises", "package exits", "module raises", "no command"],
)
def test_one_that_fails_says_so_and_the_others_work(accel, rack, package, module, said):
    rack(package, module)
    failed = accel("rack", "3", torch=False)
    assert failed.returncode == 1, failed.stderr
    assert said in failed.stderr
    assert "Traceback" not in failed.stderr


@pytest.mark.parametrize("name", ["list", "doctor"])
def test_none_takes_the_place_of_one_of_ours(accel, rack, name):
    rack(name=name)
    assert "acme" not in accel("--help", torch=False).stdout
    assert accel("list", torch=False).returncode == 0


def test_the_other_commands_import_none_of_it(accel, rack):
    rack("import os; os._exit(3)")
    for words in (("list",), ("why", "cpu"), ("help", "variables"), ("--help",)):
        done = accel(*words, torch=False)
        assert done.stdout, done
        assert ("rack" in done.stdout) is (words == ("--help",)), done
    assert accel("rack", torch=False).returncode == 3
