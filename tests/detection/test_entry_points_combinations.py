"""Any combination of layouts gives what importlib.metadata gives."""

from __future__ import annotations

import importlib
import itertools
import sys
from pathlib import Path

import pytest
from accel_testing import layouts
from accel_testing.layouts import GROUP
from accel_testing.scanning import STANDARD, oracle, ours
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

pytestmark = [pytest.mark.usefixtures("archives"), pytest.mark.filterwarnings("ignore::ResourceWarning")]

_NAMES = ("accel-npu", "Accel_NPU", "accel.mlu", "zope.thing", "plain")


_GROUPS = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {},
        optional={
            GROUP: st.dictionaries(
                st.sampled_from(["npu", "mlu"]), st.sampled_from(["m", "m:o"]), max_size=2
            ),
            "console_scripts": st.just({"run": "m:main"}),
        },
    ),
)


_LAYOUTS = {layout.__name__: layout for layout in layouts.ALL}
_DISTRIBUTION = st.tuples(
    st.sampled_from([*_LAYOUTS, "egg_info_file"]),
    st.sampled_from(_NAMES),
    st.sampled_from(["1.0", "2.0rc1"]),
    _GROUPS,
)


_runs = itertools.count()


@given(
    folders=st.lists(st.lists(_DISTRIBUTION, max_size=4), min_size=1, max_size=3),
    order=st.randoms(use_true_random=False),
)
@hypothesis_settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_combination_of_layouts_is_what_importlib_finds(tmp_path, folders, order):
    base = tmp_path / str(next(_runs))
    entries: list[Path] = []
    for number, distributions in enumerate(folders):
        root = base / str(number) / "site"
        root.mkdir(parents=True)
        entries.append(root)
        for place, (layout, name, version, groups) in enumerate(distributions):
            if layout == "egg_info_file":
                layouts.egg_info_file(root, name, version)
            elif layout in ("egg_folder", "egg_zip", "wheel_zip"):
                entries.append(_LAYOUTS[layout](root / str(place), name, version, groups, {"m": ""}))
            else:
                _LAYOUTS[layout](root, name, version, groups, {"m": ""})
    entries += order.choices(entries, k=2)  # duplicates
    order.shuffle(entries)
    before = sys.path
    sys.path = [*map(str, entries), *STANDARD]
    importlib.invalidate_caches()
    try:
        assert ours() == oracle()
    finally:
        sys.path = before
