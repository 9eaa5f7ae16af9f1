"""Plugin checks: run in a child that may hang or die, told of, and mended on request."""

import pytest
from accel_tests.plugins import hook

from accel_core import settings
from accel_tools.doctor.records import DiagnosticContext, Level
from accel_tools.doctor.run import run_topics
from accel_tools.doctor.topics import checks

HEAD = "\nfrom accel_core import Check, CheckResult, Fix\n"


def bringing(*made, before=""):
    """More of a plugin's source: a hook that gives these checks."""
    return (
        HEAD + before + hook("accel_checks", "backend", f"return [{', '.join(made)}]")
    )


def check(name, body, fix="None"):
    """The source of one check, `body` being an expression."""
    return f"Check({name!r}, 'The {name}', lambda: {body}, {fix})"


def fine(name):
    return check(name, f"CheckResult('ok', '{name} is fine', facts={{'seen': 'it'}})")


def context(**environ):
    return DiagnosticContext(settings.read(environ), environ)


def found(made):
    """What the topic finds: code and sentence by backend, in their order."""
    (topic,) = run_topics(made, [checks.TOPIC])
    assert topic.failed == ""
    said = {}
    for finding in topic.findings:
        said.setdefault(finding.about, []).append((finding.code, finding.what))
    return said, topic.findings


EXPECTED = (
    "expected an accel_core.CheckResult with one of the levels ok, warning, error"
)
#: Checks of one plugin: the name, the expression that it is, its code, and what is told.
TOLD = [
    ("wrong", "CheckResult('error', 'it is wrong.', 'mend it', {'at': 'home'})", "wrong", "it is wrong"),
    ("raises", "1 / 0", "raised",
     "the plugin's check 'The raises' failed: ZeroDivisionError: division by zero"),
    ("leaves", "exit('away')", "raised",
     "the plugin's check 'The leaves' failed: SystemExit: the code tried to exit the process with 'away'"),
    ("answers", "'well'", "invalid", f"the plugin's check 'The answers' returned 'well', {EXPECTED}"),
    ("level", "CheckResult('so-so', 'neither')", "invalid", "level='so-so'"),
    ("prints", "(print('x' * 100000), CheckResult('ok', 'said much'))[1]", "prints", "said much"),
]  # fmt: skip


def test_what_raises_is_told_and_what_is_blocked_never_imported(torch_world, tmp_path):
    torch_world.backend(
        "good", 600, extra=bringing(*(check(name, body) for name, body, *_ in TOLD))
    )
    imported = tmp_path / "imported"
    touch = f"\nimport pathlib\npathlib.Path({str(imported)!r}).touch()\n"
    torch_world.backend("blocked", 300, extra=touch + bringing(fine("never")))
    torch_world.backend("none", 200)
    said, (wrong, *_) = found(context(ACCEL_BLOCK="blocked"))
    assert said.keys() == {"good"}
    for (code, what), (*_, expected, words) in zip(said["good"], TOLD, strict=True):
        assert code == f"checks.{expected}"
        assert words in what
    assert not imported.exists()
    assert wrong.level == Level.ERROR
    assert wrong.step == "mend it"
    assert wrong.facts == {"at": "home", "check": "The wrong (accel-good 1.0)"}


def test_what_dies_or_hangs_is_told_and_the_rest_goes_on(torch_world, tmp_path):
    seen = tmp_path / "seen"
    once = f"(open({str(seen)!r}, 'a').write('x'), CheckResult('ok', 'once'))[1]"
    deadly = (check("before", once), check("deadly", "os._exit(3)"), fine("after"))
    torch_world.backend("dies", 500, extra=bringing(*deadly, before="import os\n"))
    slow = (check("hung", "time.sleep(60)"), fine("later"))
    torch_world.backend("hangs", 400, extra=bringing(*slow, before="import time\n"))
    said, findings = found(context(ACCEL_PROBE_TIMEOUT="4"))
    death = "the plugin's check 'The deadly' terminated its process: the process exited with status 3"
    assert said["dies"] == [
        ("checks.before", "once"),
        ("checks.after", "after is fine"),
        # Last, when it is known whether other plugins' checks died too.
        ("checks.died", death),
    ]
    assert seen.read_text() == "x"  # what was finished is not run again
    assert [code for code, _ in said["hangs"]] == ["checks.hung", "checks.later"]
    assert "gave no response within 4 s" in said["hangs"][0][1]
    assert next(f for f in findings if f.code == "checks.died").step.endswith(
        "maintainers of accel-dies"
    )


def test_a_hook_that_answers_nonsense_is_told(torch_world):
    torch_world.backend(
        "raising",
        600,
        extra=HEAD + hook("accel_checks", "backend", "raise OSError('disk')"),
    )
    torch_world.backend(
        "odd",
        500,
        extra=bringing(
            "'text'", check("Bad Name", "0"), fine("twice"), fine("twice"), "Check('untitled', 3, print)",
            check("unfixable", "0", "'a fix'"),
        ),
    )  # fmt: skip
    torch_world.backend(
        "leaving",
        400,
        extra=HEAD + "import os\n" + hook("accel_checks", "backend", "os._exit(1)"),
    )
    torch_world.backend("last", 300, extra=bringing(fine("only")))
    said, _ = found(context())
    assert said["raising"] == [
        ("checks.raised", "accel_checks() failed: OSError: disk")
    ]
    assert [what for _, what in said["odd"]] == [
        "accel_checks() returned 'text' (str), expected accel_core.Check",
        (
            "accel_checks() returned a check called 'Bad Name', "
            "expected lower case with hyphens, such as 'toolkit-version'"
        ),
        "twice is fine",
        "accel_checks() returned two checks called 'twice', expected different names",
        said["odd"][4][1],
        "accel_checks() returned the check 'unfixable' with the fix 'a fix', expected accel_core.Fix or None",
    ]
    assert (
        "the check 'untitled' without a title or without a function run(), exp"
        in said["odd"][4][1]
    )
    assert said["leaving"] == [
        (
            "checks.died",
            "the hook accel_checks() terminated its process: the process exited with status 1",
        )
    ]
    assert said["last"] == [("checks.only", "only is fine")]


@pytest.fixture
def mendable(torch_world, tmp_path):
    """A plugin that wants a file, and would write it; and two whose fixes go wrong."""
    wanted = tmp_path / "wanted"
    torch_world.backend(
        "card",
        600,
        extra=bringing(
            "Check('file', 'The file', look, Fix('write the file', WANTED.touch))",
            "Check('raising', 'A bad fix', wrong, Fix('fail', lambda: 1 / 0))",
            "Check('deadly', 'A worse fix', wrong, Fix('die', lambda: os._exit(4)))",
            fine("well"),
            before=f"""
import os
from pathlib import Path
WANTED = Path({str(wanted)!r})
def look():
    return CheckResult('ok', 'it is there') if WANTED.exists() else CheckResult('warning', 'it is missing')
def wrong():
    return CheckResult('error', 'all is lost')
""",
        ),
    )
    return wanted


def test_a_fix_is_applied_and_the_check_run_again(mendable):
    made = context()
    rows = [*checks.run_checks(made)]
    assert not mendable.exists()  # looking changes nothing
    file, raising, deadly, well = rows
    assert file.to_finding().step == "`accel doctor --fix` would write the file"
    assert well.to_finding().step == ""
    now = checks.apply_fix(file, made)
    assert now.level == "ok"
    assert now.what == "it is there"
    assert mendable.exists() is True
    assert (
        checks.apply_fix(raising, made).what
        == "the fix failed: ZeroDivisionError: division by zero"
    )
    assert (
        checks.apply_fix(deadly, made).what
        == "the fix terminated its process: the process exited with status 4"
    )
    assert checks.apply_fix(deadly, made).level == "error"
    assert [row.title for row in checks.list_checks(made)] == [
        "The file",
        "A bad fix",
        "A worse fix",
        "The well",
    ]
