"""As little effort as a measurement can be made with: whether it is right, not how fast anything is."""

from accel_tools.bench.records import QUICK

TINY = QUICK._replace(
    seconds=0.005, span=0.001, least=2, most=3, caches=0, least_bytes=1 << 16, copy_bytes=1 << 16,
    device_bytes=1 << 16, matrix_most=64, message_host=1 << 12, message_device=1 << 12,
)  # fmt: skip
