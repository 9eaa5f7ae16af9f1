"""Python imports this at start: it makes `import torch` give a torch with a simulated cuda device."""

from accel_simulated import builtin

builtin.install("cuda")
