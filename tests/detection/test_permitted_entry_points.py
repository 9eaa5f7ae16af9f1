"""Which distributions' code the user's policy permits."""

import pytest
from accel_tests import layouts
from accel_tests.layouts import GROUP
from accel_tests.scanning import site

from accel_core.settings import permitted_entry_points


@pytest.mark.parametrize(
    ("variables", "left"),
    [
        ({}, ["ours", "theirs", "evil"]),
        ({"ACCEL_BLOCK": "@evil"}, ["ours", "theirs"]),
        (
            {"ACCEL_BLOCK": "bad"},
            ["ours", "theirs", "evil"],
        ),  # a backend of it, and nothing else
        ({"ACCEL_BLOCK": "@accel-tools,@evil,@acme-tools"}, []),
        ({"ACCEL_ALLOW": "cpu"}, ["ours"]),
        ({"ACCEL_ALLOW": "cpu,bad"}, ["ours", "evil"]),
        ({"ACCEL_ALLOW": "bad@acme-tools,@Acme.Tools"}, ["ours", "theirs"]),
        ({"ACCEL_ALLOW": "bad", "ACCEL_BLOCK": "@evil"}, ["ours"]),
    ],
)
def test_code_of_every_group_is_asked_of_the_policy_and_ours_comes_first(
    set_sys_path, tmp_path, variables, left
):
    root = site(tmp_path)
    every = (
        ("acme-tools", "theirs", {}),
        ("evil", "evil", {GROUP: {"bad": "evil"}}),
        ("accel-tools", "ours", {}),
    )
    for name, module, more in every:
        layouts.dist_info(
            root, name, "1.0", {"accel.commands": {"doctor": module}, **more}
        )
    set_sys_path([root])
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in variables.items():
            patch.setenv(variable, value)
        assert [e.value for e in permitted_entry_points("accel.commands")] == left
