"""Lazy mode, the vendor's default, or eager mode."""

import os


def is_lazy():
    return os.environ.get("PT_HPU_LAZY_MODE", "1") != "0"
