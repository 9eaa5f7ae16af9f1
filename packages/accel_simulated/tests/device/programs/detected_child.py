"""The child process of detected_everything.py."""

import os

assert "CUDA_VISIBLE_DEVICES" in os.environ
