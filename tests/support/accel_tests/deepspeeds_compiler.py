"""The variables with which DeepSpeed compiles its operators in the tests."""

import os
from pathlib import Path

#: Without debug information: the same code in two thirds of the time (torch wants g++ in the name). All who
#: load them take the same, as ninja compiles again what another command has compiled. Whoever names one
#: gets that.
VARIABLES = (
    {} if "CXX" in os.environ else {"CXX": str(Path(__file__).parents[1] / "quick-g++")}
)
