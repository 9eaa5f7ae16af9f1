"""The exit statuses of every command."""

import pytest

#: Where `card` works, `off` has no device, and nothing is called `npx`: 0 it is so, 1 it is not, 2 misuse.
ASK = ("why", "info", "env", "ops", "frameworks", "declarations")
STATUSES = [
    *((name, "card", 0) for name in (*ASK, "doctor --topic candidates")),
    *((name, "off", 1) for name in ("why", "info", "bench")),
    *(
        (name, wrong, 2)
        for name in (*ASK, "doctor --no-experiments", "bench", "verify")
        for wrong in ("npx", "@")
    ),
    *(
        ("help", "lits", 2),
        ("doctor --topic", "chekcs", 2),
        ("setup", "npx", 2),
        ("try", "npx", 2),
    ),
]


@pytest.mark.parametrize(("words", "name", "status"), STATUSES)
def test_one_rule_of_exit_statuses(accel, words, name, status):
    accel.install_card()
    accel.world.backend("npu", 980)
    accel.install("off", "ProbeResult(False, 'switched off')")
    first, *options = words.split()
    after = ["--", "true"] if first == "try" else []
    done = accel(first, *options, name, *after)
    assert done.returncode == status, done
    if (
        status == 2 and name != "@" and first != "try"
    ):  # nothing that can be tried is installed
        assert "Did you mean" in done.stderr + done.stdout
