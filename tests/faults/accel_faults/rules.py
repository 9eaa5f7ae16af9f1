"""What must be seen of a fault, from what the documents promise; what was seen is never asked here."""

import re

from accel_faults.catalogue import SLEEP, Kind, Place
from accel_faults.modes import Mode

#: What of a user's process is put back when a plugin leaves it changed (docs/explanation/faults.md).
RESTORED = frozenset({"environment", "torch.cuda", "warnings"})
#: Of these, what is left to the package of the backend that is chosen, which may need it.
_OF_THE_CHOSEN = frozenset({"environment", "torch.cuda"})

#: They give the whole answer longer than a probe has, so that they name what a program gets.
_PATIENT = (Mode.OPS, Mode.ENV)


def dies_here(fault, place, mode):
    """Whether the user's own process meets a fault that no code in the same process survives."""
    mortal = fault.kind in (Kind.DIES, Kind.HANGS, Kind.INTERRUPTS)
    if not (mortal and mode.is_program):
        return False
    return place.after_choice or mode is Mode.IN_PROCESS


def meets(place, mode):
    """Whether the mode comes to that place at all."""
    if place is Place.CHECKS:
        return mode is Mode.DOCTOR
    if place is Place.KERNEL:
        return mode.is_program or mode in (
            Mode.INFO,
            Mode.DRY_RUN,
        )  # both ask what the devices are
    return mode.is_program or not place.after_choice or mode in (Mode.INFO, Mode.OPS)


def chosen(fault, place, mode):
    """The backend that is right: the faulty one where it works, and then it is the highest in rank.

    A command names none where one did not respond in time, or where a program would crash.
    """
    if place.after_choice:
        return "faulty"
    if fault.kind in (Kind.DIES, Kind.INTERRUPTS) and mode in _SHOWS_VERDICTS:
        return None
    slow = fault.kind is Kind.SLEEPS and mode.deadline < SLEEP and mode not in _PATIENT
    late = fault.kind is Kind.HANGS or slow
    if late and mode is not Mode.IN_PROCESS:
        return "good" if mode.is_program else None
    return "good" if place is Place.EXPLAIN or not fault.works else "faulty"


def wrong(fault, place, mode, seen):
    """What was seen and must not be, in words; empty where all is as promised."""
    return list(_wrong(fault, place, mode, seen))


def _wrong(fault, place, mode, seen):
    if dies_here(fault, place, mode):
        yield from _end(fault, place, seen)
        if not place.after_choice:
            return
    elif mode.is_program and (
        seen.returncode,
        seen.raised,
        seen.changed_by_use is None,
    ) != (0, "", False):
        yield f"the program ended with {seen.returncode}: {seen.raised or seen.text.strip()[-300:]}"
    elif seen.returncode is None:
        yield "the command did not end"
    if not meets(place, mode) or mode.is_program or not place.after_choice:
        yield from _choice(fault, place, mode, seen)
    else:
        yield from _late(fault, place, mode, seen)
    yield from _kept(place, mode, seen)
    if seen.left:
        yield f"left behind: {', '.join(seen.left)}"


def _end(fault, place, seen):
    """The program's end that nobody in it can prevent."""
    if fault.kind is Kind.DIES and seen.returncode != fault.returncode:
        yield f"the program ended with {seen.returncode}, the fault with {fault.returncode}"
    if fault.kind is Kind.HANGS and seen.returncode is not None:
        yield f"the program hung, and yet ended with {seen.returncode}"
    if (
        fault.kind is Kind.INTERRUPTS
        and "KeyboardInterrupt" not in seen.raised + seen.said_by_use
    ):
        yield f"Ctrl-C was swallowed: {seen.raised or seen.returncode}"
    if (
        place.after_choice
        and fault.kind is not Kind.INTERRUPTS
        and seen.changed_by_use is not None
    ):
        yield "the fault was not met"


def _choice(fault, place, mode, seen):
    right = chosen(fault, place, mode)
    if not seen.clean:
        yield f"stdout is no JSON: {seen.text[:300]!r}"
        return
    if mode is Mode.WHY_NAME:
        pass  # it is about one backend, and its verdict is looked at below
    elif seen.name != right or (
        right is None
        and not re.search(
            "choice is unknown|faulty .accel-faulty .* would crash a program", str(seen)
        )
    ):
        status = f"exit status {seen.returncode}"
        yield f"{seen.name} was chosen, expected {right} ({status}): {seen.text.strip()[-200:]}"
    if seen.verdicts or mode.is_program or mode in _SHOWS_VERDICTS:
        yield from _verdict(fault, place, mode, seen, usable=right == "faulty")


_SHOWS_VERDICTS = (Mode.LIST, Mode.WHY, Mode.WHY_NAME, Mode.DOCTOR)


def _verdict(fault, place, mode, seen, *, usable):
    verdict = seen.verdicts.get("faulty")
    if verdict is None:
        yield f"no verdict on the plugin among {sorted(seen.verdicts)}"
        return
    statuses, said = _promised(fault, place, mode, usable=usable)
    if verdict["status"] not in statuses:
        yield f"verdict {verdict['status']} ({verdict['reason']}), expected {' or '.join(sorted(statuses))}"
    if verdict["distribution"] != "accel-faulty":
        yield f"the verdict names {verdict['distribution']}, expected accel-faulty"
    whole = f"{verdict['reason']} {verdict['cause']} {verdict['hint']}"
    if not any(text in whole for text in said):
        yield f"the verdict says {whole!r}, expected {' or '.join(map(repr, said))}"


def _promised(fault, place, mode, *, usable):
    """The statuses that a verdict may have, and of the texts the one or the other."""
    if usable:
        return {"usable"}, ("",)
    if fault.kind in (Kind.HANGS, Kind.SLEEPS) and not (
        place is Place.EXPLAIN and mode is Mode.IN_PROCESS
    ):
        return {"timed_out"}, ("no response within",)
    if fault.kind is Kind.DIES:
        return {"crashed"}, (fault.ending,)
    if fault.kind is Kind.INTERRUPTS:
        return {"crashed"}, ("SIGINT", "status 130")
    if place is Place.EXPLAIN:
        return {"broken"}, ("libhal.so",)
    # A child that dies of an exception nobody catches has crashed; its last words are the exception.
    return {"broken", "crashed"} if mode is not Mode.IN_PROCESS else {"broken"}, (
        fault.said,
    )


def _late(fault, place, mode, seen):
    """A command that asks the chosen accelerator more than whether it is there."""
    if fault.kind in (Kind.DIES, Kind.HANGS, Kind.INTERRUPTS):
        told = f"{seen.text} {seen.document}"
        # Where torch is imported, Python ends of an interrupt with status 1.
        interrupted = ("KeyboardInterrupt",) if fault.kind is Kind.INTERRUPTS else ()
        endings = (
            (fault.ending, *interrupted)
            if fault.ending
            else ("did not finish", "no response within")
        )
        if "accel-faulty" not in told or not any(ending in told for ending in endings):
            yield f"who ended it, and how, is not told: {told}"
    elif not seen.clean:
        yield f"stdout is no JSON: {seen.text[:300]!r}"
    elif mode is Mode.DRY_RUN:
        if seen.name != "faulty" and not all(
            words in seen.text for words in ("accel-faulty", fault.said)
        ):
            yield f"what failed is not told: {seen.text.strip()[-200:]}"
    elif fault.kind is Kind.RAISES:
        if place is Place.KERNEL and fault.said not in str(
            seen.document.get("problems")
        ):
            yield f"the problem is not told: {seen.document.get('problems')}"
        if place is Place.CHECKS and fault.said not in str(seen.document):
            yield f"what the check raised is not told: {seen.text.strip()[-200:]}"
    elif fault.kind is Kind.DISTURBS and seen.name != "faulty":
        yield f"{seen.name} answered, expected faulty: {seen.text.strip()[-200:]}"


def _kept(place, mode, seen):
    """The process's own state, which the plugin must not have changed."""
    if not mode.is_program:
        for what in sorted(seen.changed):
            yield f"the user's {what} did not stay the same"
        return
    theirs = (
        _OF_THE_CHOSEN if place.of_vendor and seen.name == "faulty" else frozenset()
    )
    for what in sorted(seen.changed & (RESTORED - theirs)):
        yield f"the user's {what} did not stay the same"
    if place is Place.OP_BUILDERS:
        for what in sorted((seen.changed_by_use or set()) & RESTORED):
            yield f"the user's {what} did not stay the same when the operators were asked for"
