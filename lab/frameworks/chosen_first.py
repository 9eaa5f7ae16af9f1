"""`chosen_first.py SCRIPT ARGUMENTS`: run a script of Accelerate's after `partial_state()`.

What a user adds to a program for a device that Accelerate does not know.
"""

import runpy
import sys

from accel_train.accelerate import partial_state

partial_state()
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
