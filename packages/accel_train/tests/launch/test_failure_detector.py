"""The times of heartbeats, by the number of ranks; test_process_group.py has tests of the detection."""

import pytest

from accel_train.launch.failure_detector import FailureDetector, default_silence

RANKS = (2, 256, 1000, 4000, 8000, 100_000)


@pytest.mark.parametrize(("ranks", "seconds"), [(2, 10), (2000, 10), (8000, 40)])
def test_a_rank_counts_as_lost_later_in_a_job_of_very_many_ranks(ranks, seconds):
    assert default_silence(ranks) == seconds


@pytest.mark.parametrize("ranks", RANKS)
def test_rank_0_serves_at_most_five_hundred_heartbeats_in_a_second(ranks):
    """Which use about 3 % of a core: `python -m benchmarks.heartbeats`."""
    detector = FailureDetector(0, ["host"] * ranks, default_silence(ranks), None)
    assert ranks / detector.interval <= 500


@pytest.mark.parametrize("ranks", RANKS)
def test_a_loss_is_published_within_twice_the_silence(ranks):
    silence = default_silence(ranks)
    detector = FailureDetector(0, ["host"] * ranks, silence, None)
    # Rank 0 reads up to one interval late, twice; the others read its status half an interval late.
    assert silence + 2.5 * detector.interval <= 2 * silence
