"""The vendor-specific names that the detector records."""

from accel_core import discover
from accel_simulated import VENDORS
from accel_simulated.detector import attribution, names


def test_the_names_of_all_vendors_and_plugins_are_known():
    """Those that accel-simulated plays, and those that plugins declare."""
    for vendor in VENDORS.values():
        kind = vendor.alias_of or vendor.name
        if kind not in ("acme", "plain"):
            assert set(vendor.visible) <= set(names.TYPES[kind].variables), vendor.name
            assert {vendor.collective} - {""} <= set(names.TYPES[kind].collectives), (
                vendor.name
            )
        package = vendor.package.partition(".")[0]
        assert package in attribution._VENDOR_PACKAGES, package
    declared = [
        backend
        for backend in (found.backend for found in discover())
        if backend.device_type in names.TYPES
    ]
    assert len(declared) > 8
    for backend in declared:
        # Cambricon's runtime reads CUDA's where its own are not set.
        variables = set(backend.visibility.variables) - (
            {"CUDA_VISIBLE_DEVICES"} if backend.name == "mlu" else set()
        )
        assert variables <= set(names.TYPES[backend.device_type].variables), (
            backend.name
        )


def test_a_name_that_the_simulated_vendor_shares_is_not_recorded():
    of_npu = names.names_to_record("npu")
    assert "npu" not in of_npu
    assert of_npu["hpu"].collectives == ()
    assert "hccl" in names.names_to_record("acme")["hpu"].collectives


def test_names_of_cuda_are_recorded_on_a_simulated_cuda_too():
    """A program that is written for it alone comes to its end there only."""
    assert names.names_to_record("cuda")["cuda"] == names.TYPES["cuda"]
    assert "cuda" in names.names_to_record("xpu")
    assert "xpu" not in names.names_to_record("xpu")
