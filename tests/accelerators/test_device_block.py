"""`with accelerator.device(i):` selects nothing; a warning says so where DeepSpeed's device(i) selects."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from accel_core import TorchAccelerator
from accel_core.interface import with_block

#: A program that enters four devices, and uses four others.
PROGRAM = """
import runpy, warnings
from contextlib import nullcontext
warn_if_entered = runpy.run_path({path!r})["warn_if_entered"]
member = {{"__name__": "accel_core.member", "warn": warn_if_entered, "block": nullcontext}}
exec("def device(index):\\n    warn('card', index)\\n    return block(index)", member)
device = member["device"]
warnings.simplefilter("always")
with warnings.catch_warnings(record=True) as caught:
    with device(1):
        pass
    with device(1) as one, device(2) as two:
        pass
    def many():
        with device(index := 3):
            return [device(4), [device(number) for number in (5, 6)]]
    many()
    held = device(7)
print(*(str(warning.message).partition("device(")[2][0] for warning in caught))
"""
#: Every Python that this machine has and the project supports.
PYTHONS = sorted(
    {sys.executable, *map(str, Path(sys.base_prefix).parent.glob("3.1*/bin/python"))}
)


@pytest.fixture
def card(vendor, backend):
    """A simulated device for which DeepSpeed's class gives a block that selects."""

    class Card(TorchAccelerator):
        _warns_of_device_blocks = True

    return Card(backend())


def test_a_block_gets_one_warning_with_what_to_write(card):
    words = r"`with accelerator.device\(1\):` does not select .*device_guard\(1\)"
    with pytest.warns(UserWarning, match=words) as caught, card.device(1):
        assert card.current_device() == 0
    assert [Path(warning.filename).name for warning in caught] == [Path(__file__).name]


def test_what_the_warning_says_to_write_selects(card):
    with card.device_guard(1):
        assert card.current_device() == 1
    assert card.current_device() == 0


def test_a_device_that_is_only_used_gets_no_warning(card):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert str(card.device(1)) == "maia:1"
        with card.device():
            pass


def test_no_warning_where_deepspeeds_class_gives_a_device_too(simulated):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with simulated.device(1):
            pass


@pytest.mark.parametrize("python", PYTHONS)
def test_the_instruction_that_enters_a_block_is_found_on_each_python(python):
    source = Path(with_block.__file__).parents[2]
    program = PROGRAM.format(path=with_block.__file__)
    program = f"import sys; sys.path.insert(0, {str(source)!r})\n{program}"
    command = [python, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["1", "1", "2", "3"], done.stderr
