"""The builder of a plugin on the page of operators, which compiles with `torch.utils.cpp_extension`."""

import re
import sys

import pytest
from accel_tests.children import clean_environment, run_python
from accel_tests.tools import TREE

PAGE = TREE / "docs" / "howto" / "ops.md"
PROGRAM = """
import json
import torch
from accel_core import OpProvider
from accel_core.operators import operators_by_name

provider = OpProvider({"ScaleBuilder": "accel_acme.ops.scale:ScaleBuilder"}, name="acme")
used = operators_by_name([provider, provider])["ScaleBuilder"].used
module = used.builder_class().load(verbose=False)
print(json.dumps([used.verdict, module.scale(torch.ones(2), 2.5).tolist()]))
"""


@pytest.fixture
def plugin(tmp_path):
    """A folder with the files that the page shows, each named in its first line."""
    block = r"```\w+\n(?:#|//) (accel_acme/ops/\S+)\n(.*?)```"
    wanted = dict(re.findall(block, PAGE.read_text("utf-8"), re.DOTALL))
    assert sorted(wanted) == ["accel_acme/ops/scale.cpp", "accel_acme/ops/scale.py"]
    for name, text in wanted.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.nightly(reason="it compiles for a minute")
@pytest.mark.skipif(sys.platform == "win32", reason="its compiler has another name")
def test_the_builder_of_the_page_compiles_and_is_used(plugin):
    environ = clean_environment(
        PYTHONPATH=str(plugin), TORCH_EXTENSIONS_DIR=str(plugin / "kept")
    )
    done = run_python(["-c", PROGRAM], environ, timeout=900)
    assert done.answer == ["compatible", [2.5, 2.5]]
