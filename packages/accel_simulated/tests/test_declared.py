"""Devices that an installed plugin declares."""

import json

from accel_tests import layouts
from accel_tests.plugins import declaring

from accel_simulated import declared
from accel_simulated.detector import attribution


def test_a_distribution_with_broken_metadata_is_skipped(tmp_path, monkeypatch):
    layouts.dist_info(tmp_path, "aaa", "1.0", {layouts.GROUP: {"x": "y"}})
    (next(tmp_path.glob("aaa*.dist-info")) / "entry_points.txt").write_bytes(
        b"[accel.backends]\nx = \xff\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert declared.find("acme") is None
    assert "accel_cuda" in attribution._plugin_packages.__wrapped__()


def test_only_a_plugins_own_device_is_simulated_from_its_declaration(child, tmp_path):
    own = (
        "priority=1, torch_integration=TorchIntegration(private_use1=True), "
        "visibility=Visibility(variables=('OWN',))"
    )
    modules = {
        "accel_zing": declaring(
            "name='zing', device_type='zing', vendor_import='torch_zing', priority=1",
            f"name='zang', device_type='zang', {own}",
        ),
        "accel_acme": declaring(
            f"name='acme', device_type='acme', vendor_import='torch_acme', {own}"
        ),
        "accel_plain": declaring(
            f"name='plain', device_type='plain', vendor_import='plain_sdk', {own}"
        ),
    }
    groups = {"accel.backends": {name.removeprefix("accel_"): name for name in modules}}
    plugin = layouts.dist_info(tmp_path, "accel-zing", "1.0", groups, modules)
    code = (
        "from accel_simulated.declared import VARIABLE, find, from_environment\n"
        "devices = [find(n) for n in ('zing', 'zang', 'nobody', 'acme', 'plain')]\n"
        "print(*[device and device.to_json() for device in devices], sep='|')\n"
        "print([from_environment({VARIABLE: text}) for text in ('', 'nonsense', '[1]', '{}')])"
    )
    found, read_back = child(code, {"PYTHONPATH": str(plugin)}).splitlines()
    *none, acme, plain = found.split("|")
    assert (none, read_back) == (["None"] * 3, str([None] * 4))
    assert json.loads(plain) == [
        "plain",
        "plain",
        "plain_sdk",
        "plain_simulated",
        ["OWN"],
        {},
    ]
    assert json.loads(acme)[2:5:2] == [
        "torch_acme",
        ["OWN"],
    ]  # what hides a device only its plugin says
