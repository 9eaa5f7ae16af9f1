"""For the tests of every distribution here: a world of its own for each test (`accel_tests.fixtures`)."""

pytest_plugins = [
    "accel_tests.fixtures",
    "accel_tests.command_fixtures",
    "accel_tests.forks",
]
