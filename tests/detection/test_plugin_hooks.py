"""Who is asked which hook: the owner alone about his device, everybody about an error."""

from __future__ import annotations

import pytest
from accel_tests.asking import judge, names, vendor
from accel_tests.plugins import arguments, hook

from accel_core.detection.select import discover

FAILS = "raise ImportError('libfoo.so: cannot open shared object file')"


def explaining(world, name: str, body: str, **fields: object) -> None:
    extra = hook("accel_explain", "backend, error", body)
    world.backend(name, **{"extra": extra, **fields})


class TestErrors:
    def test_a_plugin_explains_anothers(self, torch_world):
        vendor(torch_world, FAILS)
        explaining(torch_world, "mlu", "return f'{backend.name}: {error}'")
        assert judge().hint == "npu: libfoo.so: cannot open shared object file"

    @pytest.mark.parametrize(
        "body", ["raise ValueError('bug')", "import sys; sys.exit(3)", "return 5", "return ''"]
    )
    def test_one_that_fails_or_answers_nonsense_is_passed_over(self, torch_world, body):
        vendor(torch_world, FAILS)
        explaining(torch_world, "sdaa", body, priority=900)
        explaining(torch_world, "mlu", "return 'from mlu'", priority=300)
        assert judge().hint == "from mlu"

    def test_one_whose_hooks_do_not_fit_is_passed_over(self, torch_world):
        vendor(torch_world, FAILS)
        extra = hook("accel_explain", "backend, flavour", "return 'never'")
        torch_world.backend("sdaa", 900, extra=extra)
        explaining(torch_world, "mlu", "return 'from mlu'", priority=300)
        assert judge().hint == "from mlu"

    def test_the_owner_first_then_its_declaration_then_others(self, torch_world):
        explaining(torch_world, "mlu", "return 'from mlu'", priority=900)
        own = hook("accel_explain", "backend, error", "return 'own' if 'libfoo' in str(error) else None")
        hints = (("libfoo", "data"), ("LIB(BAR|BAZ)", "more data"))
        vendor(torch_world, FAILS, extra=own, hints=hints)
        assert judge().hint == "own"
        torch_world.module("torch_npu", "raise ImportError('libbar.so')")
        assert judge().hint == "more data"
        torch_world.module("torch_npu", "raise ImportError('another one')")
        assert judge().hint == "from mlu"


#: The same hook under a name of its own, which pluggy takes by its marker.
NAMED = "\n@hookimpl(specname={hook!r})\ndef somehow(backend, others):\n    {body}\n"


@pytest.mark.parametrize("own", ["npu", "mlu"])
@pytest.mark.parametrize("named", [False, True], ids=["by name", "specname"])
class TestTheOwnerAlone:
    def extra(self, name: str, body: str, *, named: bool) -> str:
        return NAMED.format(hook=name, body=body) if named else hook(name, "backend, others", body)

    def test_is_asked_about_the_device(self, torch_world, own, named):
        for name, priority in (("npu", 700), ("mlu", 300)):
            body = f"return ProbeResult(False, '{name} was asked about ' + backend.name)"
            torch_world.backend(name, priority, extra=self.extra("accel_probe", body, named=named))
        assert judge(own).reason == f"{own} was asked about {own}"

    def test_builds_the_accelerator(self, torch_world, own, named):
        for name, priority in (("npu", 700), ("mlu", 300)):
            body = f"raise RuntimeError('{name} built ' + backend.name)"
            torch_world.backend(name, priority, extra=self.extra("accel_create", body, named=named))
        assert judge(own).reason == (
            f"accel_create() of accel-{own} 1.0 failed: RuntimeError: {own} built {own}"
        )


def test_a_declaration_under_another_name_is_read(torch_world):
    source = (
        "from accel_core import Backend, hookimpl\n"
        "@hookimpl(specname='accel_backends')\n"
        f"def what_we_have():\n    return Backend({arguments('acme')})\n"
    )
    torch_world.plugin("acme", source)
    assert "acme" in names(discover())
    assert judge("acme").usable
