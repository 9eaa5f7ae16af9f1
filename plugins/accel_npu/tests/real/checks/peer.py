"""Asks DeepSpeed's own `NPU_Accelerator` and ours the same, in one process: `python -m checks.peer`."""

import contextlib
import sys

from accel_tests.deepspeed_classes.answers import compare, leave


def main():
    import accel_core

    ours = accel_core.get_accelerator()
    # DeepSpeed logs to stdout, which is the answer's.
    with contextlib.redirect_stdout(sys.stderr):
        from accel_tests.deepspeed_classes.cases import cases
        from accel_tests.deepspeed_classes.device import Device
        from deepspeed.accelerator.npu_accelerator import NPU_Accelerator

        report = compare(
            NPU_Accelerator(), ours, cases(Device("npu", compile_backend="npugraphs"))
        )
    leave(report)


if __name__ == "__main__":
    main()
