"""Asks DeepSpeed's own `NPU_Accelerator` and ours the same, in one process: `python -m checks.peer`."""

import contextlib
import sys

from accel_tests.deepspeed_classes.answers import compare, leave


def own_cases():
    """What is asked of the npu alone: which ranges reach mstx, the vendor's profiler."""

    def reached(acc):
        from torch_npu._C import _mstx

        seen = []
        kept = _mstx._range_push_on_host, _mstx._range_pop
        _mstx._range_push_on_host, _mstx._range_pop = (lambda *a: seen.append(a)), seen.append
        try:
            acc.range_push("a", domain="d")
            acc.range_pop(domain="d")
        finally:
            _mstx._range_push_on_host, _mstx._range_pop = kept
        return len(seen)

    return {"range_push: at mstx": reached}


def main():
    import accel_core

    ours = accel_core.get_accelerator()
    # DeepSpeed logs to stdout, which is the answer's.
    with contextlib.redirect_stdout(sys.stderr):
        from accel_tests.deepspeed_classes.cases import cases
        from accel_tests.deepspeed_classes.device import Device
        from deepspeed.accelerator.npu_accelerator import NPU_Accelerator

        asked = {**cases(Device("npu", compile_backend="npugraphs")), **own_cases()}
        report = compare(NPU_Accelerator(), ours, asked)
    leave(report)


if __name__ == "__main__":
    main()
