"""A device that only an installed plugin declares is simulated under the declared names."""

import json
from pathlib import Path

from accel_tests import layouts
from accel_tests.children import clean_environment, run_python
from accel_tests.plugins import declaring

PROGRAMS = Path(__file__).with_name("programs")

#: Name and device type differ, the package lies in another, and its distribution is required.
DECLARED = (
    "name='zing', priority=500, device_type='zpu', vendor_import='zing_sdk.torch', "
    "torch_integration=TorchIntegration(private_use1=True), requires=('zing-sdk>=1.2,<2', 'torch>=2.6'), "
    "visibility=Visibility(variables=('ZING_DEVICES',)), "
    "communication_backend='zccl'"
)


def test_it_has_the_names_of_the_declaration(tmp_path, built):
    built("acme")
    plugin = layouts.dist_info(
        tmp_path, "accel-zing", "1.0", {"accel.backends": {"zing": "accel_zing"}},
        {"accel_zing": declaring(DECLARED)},
    )  # fmt: skip
    environ = clean_environment(PYTHONPATH=str(plugin), ZING_DEVICES="0,2")
    words = [
        "-m",
        "accel_core",
        "simulate",
        "zing:3",
        "--",
        "python",
        "-c",
        PROGRAMS / "declared_device.py",
    ]
    ended = run_python(words, environ).succeeded()
    name, kind, count, total, text, imported, version, collective, asked = json.loads(
        ended.stdout
    )
    assert (name, kind, count, total) == ("zing", "zpu", 2, 2.0)
    assert text.endswith(", simulated: zpu:3 by accel-simulated 0.1.0>")
    assert (imported, version, collective, asked) == (True, "1.2", True, "zpu:3")
    # It is listed with the others, and one that ends its process hides neither it nor them.
    layouts.dist_info(
        tmp_path, "accel-dead", "1.0", {"accel.backends": {"dead": "accel_dead"}},
        {"accel_dead": "import os; os._exit(3)"},
    )  # fmt: skip
    listed = run_python(["-m", "accel_core", "simulate", "--list"], environ).stdout
    assert "zing    built" in listed
    assert "as an installed plugin declares it" in listed
    more = DECLARED.replace("zing", "more") + ", accelerator='accel_more.own:Own'"
    # One that imports more of its vendor's package than is simulated is not listed.
    layouts.dist_info(
        tmp_path, "accel-more", "1.0", {"accel.backends": {"more": "accel_more"}},
        {"accel_more.__init__": declaring(more),
         "accel_more.own": "def start():\n    from more_sdk.torch import _loader"},
    )  # fmt: skip
    assert (
        "more "
        not in run_python(["-m", "accel_core", "simulate", "--list"], environ).stdout
    )
    ended = run_python(["-m", "accel_core", "simulate", "--build", "zing"], environ)
    assert (ended.returncode, ended.stdout[:6]) == (0, "zing: ")
