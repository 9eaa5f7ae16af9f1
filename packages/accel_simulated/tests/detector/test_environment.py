"""The detector records environment variables of vendors that a program reads or writes by name."""

from accel_simulated.detector.merge import merge


def test_only_variables_that_are_named_are_recorded(child, tmp_path):
    """Not by who goes through all; and one's own are not watched."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, unittest.mock\n"
        "dict(os.environ), {**os.environ}, os.environ | {}, list(os.environ.values()), os.environ.copy()\n"
        "os.environ == {}, 'CUDA_VISIBLE_DEVICES' in os.environ\n"
        "os.environ.setdefault('CUDA_VISIBLE_DEVICES', '1')\n"
        "os.environ.pop('CUDA_VISIBLE_DEVICES')\n"
        "assert os.getenv('CUDA_VISIBLE_DEVICES', 'none') == 'none'\n"
        "os.environ.update({**os.environ, 'HIP_VISIBLE_DEVICES': '0'})\n"
        "with unittest.mock.patch.dict(os.environ, {'ROCR_VISIBLE_DEVICES': '1'}): pass\n"
        "os.environ['MLU_VISIBLE_DEVICES'] = os.environ['HOME'] = '0'\n"
        "assert os.environ.copy()['MLU_VISIBLE_DEVICES'] == '0' == os.environ['HOME']\n"
    )
    variables = {
        "ACCEL_SIMULATE": "mlu",
        "ACCEL_SIMULATE_RECORD": str(tmp_path),
        "CUDA_VISIBLE_DEVICES": "0",
    }
    child(f"import runpy; runpy.run_path({str(script)!r})", variables)
    found = merge(tmp_path, tmp_path, [], "mlu", 0).places
    assert sorted((p.line, p.what.partition(" ")[2], p.times) for p in found) == [
        (3, "read", 1), (4, "read", 2), (5, "read", 1), (5, "written", 1), (6, "read", 1),
        (8, "written", 1),
    ]  # fmt: skip
