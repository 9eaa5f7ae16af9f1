"""As little effort as a measurement can be made with: whether it is right, not how fast anything is."""

from accel_tools.bench.records import QUICK

TINY = QUICK._replace(
    seconds=0.005,
    repeat_seconds=0.001,
    min_repeats=2,
    max_repeats=3,
    cache_multiple=0,
    min_bytes=1 << 16,
    copy_bytes=1 << 16,
    device_bytes=1 << 16,
    matrix_max_rows=64,
    message_host_bytes=1 << 12,
    message_device_bytes=1 << 12,
)
