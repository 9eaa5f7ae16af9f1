"""A fixture of the plugins' tests: a child. A plugin's `conftest.py` imports it where its tests use it."""

import os

import pytest

from accel_tests import children


@pytest.fixture
def child():
    """`child(code, env)`: what `code` printed; a variable that is None is taken out of the environment."""

    def run(code, env=None, timeout=120):
        environ = {
            name: value
            for name, value in {**os.environ, **(env or {})}.items()
            if value is not None
        }
        ended = children.run_python(
            ["-c", code], children.untraced(environ), timeout=timeout
        ).succeeded()
        return ended.stdout.strip()

    return run
