"""Level 0: distributions whose declaration breaks one promise each."""

from typing import NamedTuple

from accel_tests.layouts import GROUP, dist_info
from accel_tests.plugins import arguments, declaring, hook

METADATA = """Metadata-Version: 2.4
Name: accel-{name}
Version: 1.0
{more}
"""
GOOD = "Summary: A device\nLicense-Expression: Apache-2.0\nRequires-Dist: accel-core>=0.1,<1"


class BrokenDeclaration(NamedTuple):
    """A distribution that is like the good one but in one thing."""

    #: The check that is meant to catch it.
    meant: str
    #: Source that comes before the plugin's own.
    before: str = ""
    after: str = ""
    fields: tuple[tuple[str, object], ...] = ()
    metadata: str = GOOD
    files: tuple[str, ...] = ()
    follow: tuple[str, ...] = ()


BROKEN = {
    "good": BrokenDeclaration(""),
    "heavy": BrokenDeclaration(
        "import_brings_no_torch",
        "import heavy_vendor\n",
        fields=(("vendor_import", "heavy_vendor"),),
    ),
    "writing": BrokenDeclaration(
        "import_writes_no_environment", "import os\nos.environ['ACME_MODE'] = '1'\n"
    ),
    "replacing": BrokenDeclaration(
        "import_writes_no_environment",
        "import os\nos.getcwd = lambda: '/'\nos.getcwd.__module__ = __name__\n",
    ),
    "threading": BrokenDeclaration(
        "import_starts_no_thread",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(30,), daemon=True).start()\n",
    ),
    "slow": BrokenDeclaration("import_is_quick", "import time\ntime.sleep(0.02)\n"),
    "misspelt": BrokenDeclaration(
        "hooks_fit", after=hook("accel_prob", "backend", "return None")
    ),
    "greedy": BrokenDeclaration(
        "hooks_fit", after=hook("accel_probe", "backend, card", "return None")
    ),
    "silent": BrokenDeclaration("declares_itself", fields=(("description", ""),)),
    "helpless": BrokenDeclaration("declares_itself", fields=(("install_hint", ""),)),
    "classless": BrokenDeclaration(
        "class_can_be_found", fields=(("accelerator", "accel_gone.accelerator:Gone"),)
    ),
    "rootless": BrokenDeclaration(
        "distribution_needs_accel_core",
        metadata=GOOD.replace("Requires-Dist: accel-core>=0.1,<1", ""),
    ),
    "pinning": BrokenDeclaration(
        "distribution_needs_accel_core",
        metadata=f"{GOOD}\nRequires-Dist: torch==2.13.0",
    ),
    "nameless": BrokenDeclaration(
        "distribution_tells_about_itself",
        metadata=GOOD.replace("License-Expression: Apache-2.0\n", ""),
    ),
    "untidy": BrokenDeclaration(
        "wheel_holds_its_package_alone", files=("tests/test_it.py",)
    ),
}


def install(folder):
    """Put all of them there."""
    (folder / "heavy_vendor.py").write_text("")
    for name, broken in BROKEN.items():
        fields = {
            "description": "a device", "install_hint": "pip install it", "accelerator": f"accel_{name}:Gone",
            **dict(broken.fields),
        }  # fmt: skip
        source = broken.before + declaring(arguments(name, **fields)) + broken.after
        dist_info(
            folder,
            f"accel-{name}",
            "1.0",
            {GROUP: {name: f"accel_{name}"}},
            {f"accel_{name}": source},
        )
        info = folder / f"accel_{name}-1.0.dist-info"
        (info / "METADATA").write_text(METADATA.format(name=name, more=broken.metadata))
        rows = [
            f"accel_{name}.py",
            f"{info.name}/METADATA",
            f"{info.name}/RECORD",
            *broken.files,
        ]
        for file in (
            broken.files
        ):  # importlib.metadata tells of what is there alone, since Python 3.12
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).touch()
        (info / "RECORD").write_text("".join(f"{row},,\n" for row in rows))


def suite():
    """The source of a vendor's test file with a class for each of them."""
    classes = "".join(
        f'\n\nclass Test_{name}(kit.TestDeclaration):\n    backend = "{name}"\n'
        for name in BROKEN
    )
    head = "from accel_testing.conformance import test_declaration as kit\n"
    return f"{head}{classes}"
