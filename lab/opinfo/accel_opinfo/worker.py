"""Runs cases in this process, on its device: a JSON line in, JSON lines out.

In: `{"name", "dtype", "skip"}`. Out: `{"about": VARIANT}` before each variant, then
`{"variants": ...}` with `tally.Tally`'s counts, or `{"unmade": WHY}` where torch cannot make the samples.
"""

import json
import os
import sys
import time

DTYPES = ["float32", "bfloat16", "float16", "complex64", "int64", "bool"]


def cases():
    """Give database, name and dtype of every case there is."""
    from accel_opinfo import operators

    return [["operators", *case] for case in operators.cases(DTYPES)]


def one(name, dtype, device, skip, about, **bounds):
    """Run one case against the CPU, within `Tally`'s `bounds`, and give its counts."""
    from accel_opinfo import operators
    from accel_opinfo.tally import Tally, first_line

    tally = Tally(device, frozenset(skip), about, **bounds)
    start = time.perf_counter()
    try:
        operators.run(name, dtype, tally)
    except Exception as error:
        return {"unmade": first_line(error), "variants": tally.variants}
    return {
        "variants": tally.variants,
        "seconds": round(time.perf_counter() - start, 2),
    }


def main():
    """Answer each line of standard input until it ends. Standard output is for answers alone."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    device, bounds = os.environ.get("ACCEL_SIMULATE", "").partition(":")[0], {}
    import torch

    if not device and "--cases" not in sys.argv:
        from accel_core import get_accelerator

        device = get_accelerator().device().type
        bounds = {"exact": False, "seconds": float(os.environ["ACCEL_OPINFO_SECONDS"])}

    torch.set_num_threads(1)
    sys.setrecursionlimit(10_000)

    def say(answer):
        answers.write(json.dumps(answer) + "\n")

    say({"cases": cases()} if "--cases" in sys.argv else {"ready": torch.__version__})
    for line in sys.stdin:
        asked = json.loads(line)
        case = (asked["name"], asked["dtype"], device, asked["skip"])
        say(one(*case, lambda variant: say({"about": variant}), **bounds))


if __name__ == "__main__":
    main()
