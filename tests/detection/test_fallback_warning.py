"""How much the fallback's warning says, by which rank, and which line of the program it names."""

import pytest
from accel_tests.asking import fallback_warnings
from accel_tests.plugins import NO_DEVICE

from accel_core.backend import Hardware

HERE, GONE = ("/dev/null",), ("/dev/acme[0-9]*",)


def cards(world, *names, nodes=GONE):
    for name in names:
        card = Hardware(f"{name.capitalize()} GPU", nodes=nodes, pci_ids=("fade",))
        world.backend(
            name,
            hardware=card,
            vendor_import="json" if nodes == GONE else f"torch_{name}",
        )


def test_where_there_merely_is_no_device_one_line_says_so(torch_world, caplog):
    cards(torch_world, "acme", "other")
    for name in ("mlu", "sdaa", "supa"):
        torch_world.backend(name, vendor_import=f"torch_{name}")
    (caught,) = fallback_warnings()
    assert str(caught.message) == (
        "No usable accelerator; falling back to the CPU (no Acme or Other GPU found). "
        "Run `accel why` for details, or set DS_ACCELERATOR=cpu to silence this warning."
    )
    caplog.set_level("DEBUG", "accel_core")
    (caught,) = fallback_warnings()
    for words in (
        "/dev/acme[0-9]*",
        "vendor's package not installed: mlu, sdaa, supa",
        "other (accel-other",
    ):
        assert words in str(caught.message)


def test_hardware_that_is_here_is_told_first_and_in_full(torch_world):
    cards(torch_world, "acme")
    cards(torch_world, "zebra", nodes=HERE)
    (caught,) = fallback_warnings()
    _, first, *_ = str(caught.message).splitlines()
    assert first.startswith(
        "  zebra (accel-zebra 1.0): not installed: torch_zebra is not installed, though"
    )


#: Who speaks of an absent device: rank 0 alone, as all hosts lack it. Of a broken one: a rank on each host.
RANKS = {
    "rank 0": {"rank": "0", "local_rank": "0", "warns_of_absent": True, "warns_of_broken": True},
    "another rank on its host": {
        "rank": "1", "local_rank": "1", "warns_of_absent": False, "warns_of_broken": False,
    },
    "first rank on another host": {
        "rank": "8", "local_rank": "0", "warns_of_absent": False, "warns_of_broken": True,
    },
    "rank without a local rank": {
        "rank": "3", "local_rank": "", "warns_of_absent": False, "warns_of_broken": False,
    },
    "no job": {"rank": "", "local_rank": "", "warns_of_absent": True, "warns_of_broken": True},
    "rank that is not a number": {
        "rank": "odd", "local_rank": "0", "warns_of_absent": False, "warns_of_broken": True,
    },
}  # fmt: skip


@pytest.fixture(params=RANKS.values(), ids=RANKS.keys())
def job_rank(request, monkeypatch):
    monkeypatch.setenv("RANK", request.param["rank"])
    monkeypatch.setenv("LOCAL_RANK", request.param["local_rank"])
    return request.param


def test_of_an_absent_device_one_rank_of_the_job_warns(torch_world, job_rank):
    cards(torch_world, "acme")
    assert len(fallback_warnings()) == (1 if job_rank["warns_of_absent"] else 0)


def test_of_a_broken_device_one_rank_on_each_host_warns(torch_world, job_rank):
    cards(torch_world, "acme")
    cards(torch_world, "zebra", nodes=HERE)
    assert len(fallback_warnings()) == (1 if job_rank["warns_of_broken"] else 0)


def test_the_warning_points_past_packages_at_the_users_own_line(torch_world, tmp_path):
    torch_world.backend("npu", extra=NO_DEVICE)
    between = torch_world.root / "site-packages" / "framework.py"
    between.write_text("import accel_core\naccel_core.get_accelerator()\n")
    assert "site-packages" in str(between)
    torch_world.plugin("unused", "")
    user = tmp_path / "train.py"
    user.write_text(
        "import warnings\nwarnings.simplefilter('default')\n\nimport framework\n"
    )
    done = torch_world.child(
        f"import runpy\nrunpy.run_path({str(user)!r})", strict=False
    )
    assert f"{user}:4: AcceleratorFallbackWarning: No usable accelerator" in done.stderr
