"""Two distributions: `accel-faulty`, with one fault in one place, and `accel-good`, ranked below it."""

import textwrap

from accel_tests import layouts, plugins

from accel_faults.catalogue import Place

VERSION = "1.2"

_ACCELERATOR = """
from accel_core import Accelerator, DeviceProperties
import faulty_doing

class Faulty(Accelerator):
    def __init__(self, backend):
        super().__init__(backend)
        {construction}
    def device_count(self):
        {count}
        return 2
    def current_device(self):
        return 0
    def device_properties(self, device_index=None):
        {kernel}
        return DeviceProperties(name="Faulty")
    def synchronize(self, device_index=None):
        {kernel}
"""
_DO = "faulty_doing.now()"


def install(site, fault, place):
    """Install both below `site`; the vendor's package of the faulty one is `torch_faulty`."""
    layouts.dist_info(
        site, "accel-good", "1.0",
        {layouts.GROUP: {"good": "accel_good"}},
        {
            "accel_good": plugins.declaring(plugins.arguments("good", 300)),
            "accel_sim_device": plugins.ACCELERATOR.format(count="return 2"),
        },
    )  # fmt: skip
    vendor = (
        _DO
        if place is Place.VENDOR
        else "raise OSError('libhal.so')"
        if place is Place.EXPLAIN
        else ""
    )
    layouts.dist_info(
        site, "accel-faulty", VERSION,
        {layouts.GROUP: {"faulty": "accel_faulty"}},
        {
            "faulty_doing": f"def now():\n{textwrap.indent(fault.source, '    ')}\n",
            "accel_faulty": _plugin(place),
            "torch_faulty": f"import faulty_doing\n{vendor}\n",
            "faulty_device": _ACCELERATOR.format(
                construction=_at(place, Place.CONSTRUCTION),
                count=_at(place, Place.COUNT),
                kernel=_at(place, Place.KERNEL),
            ),
        },
    )  # fmt: skip


def _plugin(place):
    declared = plugins.arguments(
        "faulty", 700, vendor_import="torch_faulty", accelerator="faulty_device:Faulty"
    )
    source = plugins.HEAD + "import faulty_doing\n"
    if place is Place.IMPORT:
        source += f"{_DO}\n"
    source += plugins.hook(
        "accel_backends",
        "",
        f"{_at(place, Place.BACKENDS)}\nreturn Backend({declared})",
    )
    name, parameters = {
        Place.PROBE: ("accel_probe", "backend, others"),
        Place.CREATE: ("accel_create", "backend, others"),
        Place.EXPLAIN: ("accel_explain", "backend, error"),
        Place.OP_BUILDERS: ("accel_op_builders", "backend"),
        Place.CHECKS: ("accel_checks", "backend"),
    }.get(place, ("", ""))
    return source + (
        plugins.hook(name, parameters, f"{_DO}\nreturn None") if name else ""
    )


def _at(place, here):
    return _DO if place is here else "pass"
