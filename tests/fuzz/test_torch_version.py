"""Whatever stands in torch's version file: it is read, or passed over."""

from __future__ import annotations

import itertools

from accel_tests.fuzzing import fuzzed
from hypothesis import example
from hypothesis import strategies as st

from accel_core._support import torch_import

_runs = itertools.count()

#: What torch's version file is read for, and what else may stand there.
LINES = r"""__version__ = '2.13.0'
cuda: Optional[str] = None
hip = '6'
xpu = 1
cuda = '12' + ''
import os
x = (
# coding: nonsense
a.b = c[0] = '1'
__version__ = b'2'""".splitlines()
TEXT = st.lists(st.sampled_from([*LINES, "\ufeff"]) | st.text(max_size=20), max_size=6).map("\n".join)
VERSION = TEXT.map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=60)


@fuzzed(written=VERSION)
@example(written=b"x = " + b"(" * 50_000 + b")" * 50_000)
@example(written=b"x = " + b"-" * 200_000 + b"1")
@example(written=b"x = 1" + b"+1" * 50_000)
def test_any_version_file_of_torch_is_read_or_passed_over(tmp_path_factory, written):
    file = tmp_path_factory.getbasetemp() / f"{next(_runs)}.py"
    file.write_bytes(written)
    for name, value in torch_import._assignments(str(file)).items():
        assert isinstance(name, str)
        assert isinstance(value, str)
    file.unlink()
