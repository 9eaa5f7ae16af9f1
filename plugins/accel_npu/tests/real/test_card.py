"""What the checks of accel_testing.conformance promise of every accelerator, on the real torch_npu."""

import pytest
from accel_tests.cards import require_as_recorded
from checks.card import NAME, card

#: By day, of the kit's parts with what `checks/` leaves to them.
BY_DAY = {
    "interface.answers": ("available", "communication", "forwarded_variables", "operators",
                          "visible_devices_are_written"),
    "interface.selection": ("members_take_a_device_in_any_form",),
    "interface.traces": ("is_initialized_is_torchs",),
    "compute.arithmetic": ("autocast", "saved_tensors_load"),
    "compute.queues": ("work_on_a_stream_is_seen_after_waiting", "a_stream_waits_for_another", "late_copies",
                       "graph_replays_with_new_inputs", "capturing_is_told"),
    "compute.amounts": ("devices_count_for_themselves", "cache_is_given_back", "free_memory_shrinks"),
}  # fmt: skip


def test_its_checks_by_day(stand_in):
    names = [f"{group}.{check}" for group, checks in BY_DAY.items() for check in checks]
    found = card(stand_in, *names)
    assert found["outcomes"] == dict.fromkeys(names, "passed"), found["reasons"]


@pytest.mark.nightly(reason="a score card: a minute")
def test_card(stand_in):
    """Nothing fails but what `expected.toml` names, and the docs' page of scores tells what came."""
    require_as_recorded(card(stand_in), NAME)
