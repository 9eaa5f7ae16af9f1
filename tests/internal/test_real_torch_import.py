"""The real torch, beside a vendor's package that breaks its autoload."""

import os

import pytest
from accel_tests import processes

from accel_core import torch_import
from accel_core.torch_import import import_torch

AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"


@pytest.fixture
def real(world):
    """The real torch and a vendor package that breaks torch's autoload."""
    # As torch_npu's, it switches the autoload off for whatever comes after it.
    world.module(
        "torch_bad",
        f"import os\nos.environ[{AUTOLOAD!r}] = '0'\nraise ImportError('libbad.so: undefined symbol')",
    )
    world.distribution(
        "torch-bad", "1.0", {"torch.backends": {"bad": "torch_bad:autoload"}}
    )
    return world


def test_a_broken_vendor_kills_import_torch_and_not_us(real):
    """One broken wheel, and `import torch` alone fails."""
    # After that the program can have nothing of torch any more; it learns how to find the package.
    alone = real.child(
        "import json\n"
        "try: import torch\n"
        "except RuntimeError as error: first = repr(error.__cause__)\n"
        "import accel_core\n"
        "try: accel_core.get_accelerator()\n"
        "except accel_core.BackendUnavailableError as error: print(json.dumps([first, str(error)]))",
        torch="real",
        variables={"TORCH_DEVICE_BACKEND_AUTOLOAD": "1"},
    )
    first, then = alone.answer
    assert "libbad.so" in first
    assert then == (
        "an `import torch` in this process failed or was interrupted, and torch cannot be imported "
        "twice. Next step: if torch's autoload is the cause, `accel why` names the package."
    )
    ours = real.child(
        "import json, warnings, accel_core\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    acc = accel_core.get_accelerator()\n"
        "import torch\n"
        "total = float(torch.ones(2, device=acc.device()).sum())\n"
        "print(json.dumps([acc.name, total, [str(w.message) for w in caught]]))",
        torch="real",
    )
    name, total, said = ours.answer
    assert total == 2.0
    if name == "cpu":
        assert any("libbad.so: undefined symbol" in text for text in said)


def test_the_build_of_the_real_torch_is_the_same_read_and_asked(world):
    code = (
        "import json, sys\nfrom accel_core.torch_import import torch_build\n"
        "read = str(torch_build())\nassert 'torch' not in sys.modules\n"
        "import torch\nprint(json.dumps([read, str(torch_build())]))"
    )
    read, asked = world.child(code, torch="real").answer
    assert read == asked
    assert read.startswith("torch ")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_another_thread_imports_torch_leaves_a_child_that_can(torch_world):
    assert processes.fork_amid(torch_import._lock, lambda: import_torch().Tensor)
