"""Holds the answers of both classes against the table of their differences, both ways."""

import re
from pathlib import Path
from typing import NamedTuple

TABLE = (
    Path(__file__).parents[4]
    / "packages/accel_train/tests/deepspeed/classes"
    / "DIFFERENCES.md"
)
VENDORS = ("cpu", "cuda", "hpu", "klxpu", "mlu", "mps", "npu", "sdaa", "supa", "xpu")
#: How the reason of a difference begins that is ours to mend.
OPEN = "ours, open:"


class Difference(NamedTuple):
    """How the two answers to a case begin, and why ours is another one; `*` stands for anything."""

    theirs: str
    ours: str
    why: str


class Count(NamedTuple):
    """The comparison of one vendor in numbers; `different` includes those that are `open`."""

    members: int
    cases: int
    equal: int
    different: int
    open: int


def differences(vendor):
    """The rows of a vendor by case, with its name and the member's put in."""
    found = {}
    for vendors, cases, *cells in _rows():
        if vendor not in vendors.replace("all", " ".join(VENDORS)).split():
            continue
        for case in cases.replace("`", "").split("<br>"):
            assert case not in found, f"{vendor}: {case} stands twice in {TABLE.name}"
            member = case.partition(":")[0]
            theirs, ours, why = (
                cell.strip("`").replace("{vendor}", vendor).replace("{member}", member)
                for cell in cells
            )
            found[case] = Difference(theirs, ours, why)
    return found


def _rows():
    """The cells of each row: vendors, cases, DeepSpeed's answer, ours, why."""
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("|") and not line.startswith(("| vendors", "|---")):
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            assert len(list(filter(None, cells))) == 5, (
                f"{TABLE.name}: not a row of five cells: {line}"
            )
            unknown = set(cells[0].split()) - {"all", *VENDORS}
            assert not unknown, f"{TABLE.name}: no such vendor: {sorted(unknown)}"
            yield cells


def problems(report, expected):
    """What is wrong with the table, or with the cases: a line for each."""
    answers = report["answers"]
    wrong = [
        f"{name}: a member of DeepSpeed's class that no case asks for"
        for name in report["not asked"]
    ]
    for case, both in answers.items():
        if both["theirs"] == both["ours"]:
            continue
        row, texts = (
            expected.get(case),
            f"DeepSpeed's: {both['theirs']}\n    ours: {both['ours']}",
        )
        if row is None:
            wrong.append(f"{case}: differs, and the table has no reason\n    {texts}")
        elif not (
            _begins(both["theirs"], row.theirs) and _begins(both["ours"], row.ours)
        ):
            wrong.append(f"{case}: differs otherwise than the table says\n    {texts}")
    for case in expected:
        if case not in answers:
            wrong.append(f"{case}: in the table, and nobody asks it")
        elif answers[case]["theirs"] == answers[case]["ours"]:
            wrong.append(
                f"{case}: in the table, and both answer {answers[case]['ours']}"
            )
    return wrong


def _begins(text, beginning):
    pattern = ".*".join(re.escape(part) for part in beginning.split("*"))
    return re.match(pattern, text) is not None


def count(report, expected):
    """The numbers of a report."""
    answers = report["answers"].values()
    equal = sum(both["theirs"] == both["ours"] for both in answers)
    still_open = sum(row.why.startswith(OPEN) for row in expected.values())
    return Count(
        report["members"], len(answers), equal, len(answers) - equal, still_open
    )
