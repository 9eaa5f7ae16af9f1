"""What tests in forks ask of DeepSpeed and of us."""

import contextlib
import io


def shared():
    """The name of the accelerator that is ours and DeepSpeed's, whoever asks."""
    import deepspeed
    from deepspeed.accelerator import is_current_accelerator_supported
    from deepspeed.accelerator.real_accelerator import get_accelerator

    import accel_core

    ours = accel_core.get_accelerator()
    assert get_accelerator() is ours is deepspeed.get_accelerator()
    assert isinstance(ours, accel_core.Accelerator)
    assert isinstance(ours, deepspeed.accelerator.DeepSpeedAccelerator)
    assert is_current_accelerator_supported()
    return ours.name


def activated(**options):
    """What `activate()` answers, and what it prints on standard error."""
    from accel_train.deepspeed import activate

    with contextlib.redirect_stderr(io.StringIO()) as said:
        found = activate(**options)
    return found, said.getvalue()
