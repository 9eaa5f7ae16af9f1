"""DeepSpeed with the patches of contrib/: which accelerator it finds by itself, without `activate()`.

`training/test_training.py` trains on it.
"""

import os
import sys

import pytest
from accel_tests import layouts
from accel_tests.forks import forked
from patched import PATCHES

from accel_core.errors import AccelError

ACME, THEIRS = ["acme", "ours"], ["cpu", "theirs"]
#: A vendor with a class of its own and nothing of ours; and one whose device is absent.
STRANGERS = """
from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

class Own(CPU_Accelerator):
    pass

def absent():
    return None
"""


@pytest.fixture(scope="session")
def copies(deepspeed_copy):
    """The folders of the patched copies, made before a fork takes one."""
    return {patch: str(deepspeed_copy(patch)) for patch in PATCHES}


class Patched:
    """A patched DeepSpeed, in a fork."""

    def __init__(self, copy):
        sys.path.insert(0, copy)
        import deepspeed
        from deepspeed.accelerator import real_accelerator

        assert deepspeed.__file__.startswith(copy)
        self.first, self.real = self.look(), real_accelerator
        self.known = [name for name in real_accelerator.SUPPORTED_ACCELERATOR_LIST if name != "acme"]

    def look(self):
        """The device that it has, and whose accelerator that is."""
        import deepspeed
        from deepspeed import accelerator

        import accel_core

        theirs = deepspeed.get_accelerator()
        assert isinstance(theirs, accelerator.DeepSpeedAccelerator)
        assert accelerator.is_current_accelerator_supported()
        if not isinstance(theirs, accel_core.Accelerator):
            return [theirs.device_name(), "theirs"]
        same = theirs is accelerator.get_accelerator() is accel_core.get_accelerator()
        return [theirs.device_name(), "ours" if same else "another of ours"]

    def chosen(self, pin=None, **variables):
        """What a new process would choose: the modules stay, the choices are forgotten."""
        import accel_core

        os.environ.pop("ACCEL_INTEGRATIONS", None)
        os.environ.pop("DS_ACCELERATOR", None)
        os.environ.update(variables, **({} if pin is None else {"DS_ACCELERATOR": pin}))
        accel_core.set_accelerator(None)
        self.real.ds_accelerator = None
        self.real.SUPPORTED_ACCELERATOR_LIST[:] = self.known
        try:
            return self.look()
        except (AccelError, ValueError) as error:
            return [type(error).__name__, str(error)]

    def refuses(self, pin):
        """Whether the pin is refused as ours are."""
        kind, said = self.chosen(pin)
        return kind == "BackendNotFoundError" and f"DS_ACCELERATOR={pin!r}" in said


@forked("acme")
def test_a_deepspeed_that_asks_entry_points(copies, tmp_path):
    patched = Patched(copies["entry points"])
    chosen = patched.chosen
    assert [patched.first, *map(chosen, (None, "acme", " Acme", "nope,acme", "accel"))] == [ACME] * 6
    assert "DS_ACCELERATOR" not in os.environ
    assert os.environ["ACCEL_INTEGRATIONS"] == "deepspeed"
    assert [chosen("cpu"), chosen("cpu@accel-core")] == [THEIRS, ["cpu", "ours"]]
    assert patched.refuses("nope")
    os.environ["ACCEL_BLOCK"] = "acme"
    assert [chosen(), chosen(ACCEL_INTEGRATIONS="deepspeed")] == [THEIRS, ["cpu", "ours"]]
    groups = {"deepspeed.accelerators": {"own": "strangers:Own", "absent": "strangers:absent"}}
    layouts.dist_info(tmp_path / "more", "strangers", "1.0", groups, {"strangers": STRANGERS})
    sys.path.insert(1, str(tmp_path / "more"))
    assert [chosen("own"), chosen("absent")[0], chosen()] == [THEIRS, "ValueError", THEIRS]
    assert type(patched.real.get_accelerator()).__name__ == "Own"


@forked("acme", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
def test_a_deepspeed_that_asks_accel_core(copies):
    """Its child processes need no entry point of torch's."""
    patched = Patched(copies["native"])
    import deepspeed
    from deepspeed.accelerator import set_accelerator
    from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

    import accel_core
    from accel_train.deepspeed import activate

    assert (patched.first, accel_core.selection().how.value) == (ACME, "pinned")
    assert not any("AUTOLOAD" in sentence for sentence in activate().limits)
    assert [patched.chosen(), patched.chosen("cpu")] == [ACME, ["cpu", "ours"]]
    assert patched.refuses("nope")
    patched.chosen("cpu")
    acme = accel_core.accelerator("acme")
    set_accelerator(acme)
    assert patched.look() == ACME
    assert activate().accelerator is acme is deepspeed.runtime.engine.get_accelerator()
    set_accelerator(CPU_Accelerator())
    assert patched.look() == ["cpu", "ours"]
    assert activate().accelerator.device_name() == "cpu"
    with pytest.raises(TypeError, match="is not an accelerator"):
        set_accelerator(3)
    assert patched.look() == ["cpu", "ours"]
