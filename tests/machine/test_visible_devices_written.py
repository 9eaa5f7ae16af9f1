"""Each vendor's visible-devices grammar, written."""

import pytest

from accel_core.errors import AccelError
from accel_core.hardware.visible_devices import (
    format_visible_devices,
)

U1 = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"


U2 = "GPU-74b0a1c9-1b36-4fd2-9e55-0a2a6c1ffb11"


MIG = "MIG-c7384736-a75d-5afc-978f-d2f1294409fd"


OLD_MIG = f"MIG-{U1}/1/0"


MLU = "8d0a7b4e-5f11-4cf6-a0bd-3ea8ab1c71c2"


@pytest.mark.parametrize(
    ("grammar", "ids", "value"),
    [
        ("cuda", [], ""),
        ("cuda", [2, 0], "2,0"),
        ("cuda", ["2", "0"], "2,0"),
        ("cuda", [U1, "GPU-74b0"], f"{U1},GPU-74b0"),
        ("cuda", [MIG, OLD_MIG], f"{MIG},{OLD_MIG}"),
        ("ascending", [3, 1, 2], "1,2,3"),
        ("ascending", [10, 3, 9], "3,9,10"),
        ("ascending", [], ""),
        ("modules", [7, 6], "7,6"),
        ("mlu", [1, 0], "1,0"),
        ("mlu", [MLU], MLU),
        ("level-zero", [1, "0.1"], "0.1,1"),
        ("level-zero", [1, "0.1", 0], "0,0.1,1"),
        ("indices", [4, 0], "4,0"),
        ("indices", [], ""),
        ("ranges", [4, 0], "4,0"),
        ("ranges", [], ""),
    ],
)
def test_format(grammar, ids, value):
    assert format_visible_devices(grammar, ids) == value


@pytest.mark.parametrize(
    ("grammar", "ids", "message"),
    [
        ("cuda", [0, U1], "cannot express .* of one kind"),
        ("cuda", [U1, MIG], "cannot express .* of one kind"),
        ("cuda", [0, 0], "names a device twice"),
        ("cuda", ["0", 0], "names a device twice"),
        ("cuda", [-1], "-1 is not a device"),
        ("cuda", [True], "True is not a device"),
        ("cuda", [None], "None is not a device"),
        (
            "cuda",
            ["cuda:0"],
            "'cuda:0' is not a device in the grammar 'cuda', expected indices, GPU-",
        ),
        ("cuda", ["GPU-"], "'GPU-' is not a device"),
        ("cuda", [f"{U1},{U2}"], "is not a device"),
        ("cuda", [10**9], "is not a device"),
        ("ascending", [U1], "is not a device"),
        ("ascending", [1, 1], "names a device twice"),
        ("modules", [8], "8 is not a device in the grammar 'modules'"),
        ("modules", [], "cannot express .* module ids"),
        ("mlu", [MLU, 0], "cannot express"),
        ("mlu", [MLU[:20]], "is not a device"),
        ("mlu", [MLU.replace("-", "0")], "is not a device"),
        ("level-zero", [], "cannot express .* one or more entries"),
        ("level-zero", ["0.1.2"], "is not a device"),
        ("indices", ["0.1"], "is not a device"),
        (
            "ranges",
            ["0-1"],
            "'0-1' is not a device in the grammar 'ranges', expected indices or",
        ),
        ("tpu", [0], "unknown visible-devices grammar"),
    ],
)
def test_format_refuses_what_would_mean_something_else(grammar, ids, message):
    with pytest.raises(ValueError, match=message) as caught:
        format_visible_devices(grammar, ids)
    assert isinstance(caught.value, AccelError)
