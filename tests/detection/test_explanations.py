"""Every plugin may explain an error, the owner first."""

import pytest
from accel_tests.asking import judge, vendor
from accel_tests.plugins import hook

RAISES = "raise ImportError('libfoo.so: cannot open shared object file')"


def explaining(world, name, body, parameters="backend, error", **fields):
    world.backend(name, extra=hook("accel_explain", parameters, body), **fields)


BAD = ("raise ValueError", "import sys; sys.exit(3)", "return 5", "return ''")


@pytest.mark.parametrize(
    ("body", "parameters"),
    [
        *((body, "backend, error") for body in BAD),
        ("return 'never'", "backend, flavour"),
    ],
)
def test_one_that_fails_answers_nonsense_or_does_not_fit_is_passed_over(
    torch_world, body, parameters
):
    vendor(torch_world, RAISES)
    explaining(torch_world, "sdaa", body, parameters, priority=900)
    explaining(torch_world, "mlu", "return f'{backend.name}: {error}'", priority=300)
    assert judge().hint == "npu: libfoo.so: cannot open shared object file"


def test_the_owner_first_then_its_declaration_then_others(torch_world):
    explaining(torch_world, "mlu", "return 'from mlu'", priority=900)
    own = hook(
        "accel_explain",
        "backend, error",
        "return 'own' if 'libfoo' in str(error) else None",
    )
    vendor(
        torch_world,
        RAISES,
        extra=own,
        hints=(("libfoo", "data"), ("LIB(BAR|BAZ)", "more data")),
    )
    assert judge().hint == "own"
    for error, hint in (("libbar.so", "more data"), ("another one", "from mlu")):
        torch_world.module("torch_npu", f"raise ImportError({error!r})")
        assert judge().hint == hint
    for number in range(
        19
    ):  # each that failed would import all, were their number not bounded
        torch_world.backend(f"more{number}", 950)
    assert judge().hint != "from mlu"
