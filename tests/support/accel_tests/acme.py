"""A device that is nobody's, and what judges it on a machine that is a tree of files."""

from dataclasses import replace

from accel_core.backend import (
    Backend,
    Hardware,
    Provenance,
    ResourceRequest,
    Visibility,
)

ACME = Backend(
    name="acme",
    priority=350,
    device_type="acme",
    vendor_import="json",
    hardware=Hardware(
        name="Acme XLA card",
        nodes=("/dev/acme[0-9]*",),
        shared_nodes=("/dev/accel/accel[0-9]*",),
        pci_ids=("fade:0001",),
        driver_file="/sys/module/acme",
        driver_step="install Acme's driver",
    ),
    request=ResourceRequest(docker="--device /dev/acme0"),
    install_hint="pip install torch-acme",
    visibility=Visibility(
        ("ACME_VISIBLE_DEVICES", "CARD_VISIBLE_DEVICES"),
        filters=("ACME_FILTER",),
        grammar="cuda",
    ),
    provenance=Provenance("accel-acme", "1.0", "acme", "accel_acme"),
)


def acme(**changes):
    """Acme's with other fields; of a record, given as a dict, with other fields of its own."""
    return replace(
        ACME,
        **{
            k: replace(getattr(ACME, k), **v) if isinstance(v, dict) else v
            for k, v in changes.items()
        },
    )
