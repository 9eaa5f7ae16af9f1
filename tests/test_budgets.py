"""The first call of a process pays for nothing that it does not need: no torch, no vendor, no process."""

import pytest

#: Which of these modules are imported is what the tests look at.
IMPORTED = "import json, sys; print(json.dumps([name for name in {names!r} if name in sys.modules]))"

#: Prints the audit events by which Python starts a process or leaves for another program.
STARTED = """
import json, sys
started = []
names = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "os.exec")
sys.addaudithook(lambda name, arguments: name in names and started.append(name))
{code}
print(json.dumps(started))
"""


def test_finding_the_backends_imports_neither_torch_nor_a_vendor(torch_world):
    torch_world.module("torch_acme", "")
    torch_world.backend("acme", 900, vendor_import="torch_acme")
    code = "import accel_core; assert 'acme' in [each.name for each in accel_core.discover()]\n"
    imported = torch_world.child(
        code + IMPORTED.format(names=["torch", "torch_acme"]), bare=False
    ).answer
    assert imported == []


def test_the_first_call_imports_the_chosen_vendor_and_none_that_ranks_lower(
    torch_world,
):
    for name, priority in (("acme", 900), ("zebra", 300)):
        torch_world.module(f"torch_{name}", "")
        torch_world.backend(name, priority, vendor_import=f"torch_{name}")
    code = "import accel_core; assert accel_core.get_accelerator().name == 'acme'\n"
    code += IMPORTED.format(names=["torch_acme", "torch_zebra"])
    assert torch_world.child(code, bare=False).answer == ["torch_acme"]


def test_the_first_call_with_the_cpu_pinned_imports_no_vendor(torch_world):
    torch_world.module("torch_acme", "")
    torch_world.backend("acme", 900, vendor_import="torch_acme")
    code = "import accel_core; assert accel_core.get_accelerator().name == 'cpu'\n"
    code += IMPORTED.format(names=["torch_acme"])
    assert (
        torch_world.child(code, variables={"DS_ACCELERATOR": "cpu"}, bare=False).answer
        == []
    )


@pytest.mark.parametrize("plugin", [False, True], ids=["no plugin", "one plugin"])
def test_the_first_call_starts_no_process(torch_world, plugin):
    if plugin:
        torch_world.backend("acme", 900)
    code = STARTED.format(code="import accel_core; accel_core.get_accelerator()")
    assert torch_world.child(code, bare=False).answer == []
