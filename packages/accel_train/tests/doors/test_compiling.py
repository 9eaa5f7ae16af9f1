"""torch.compile with the chosen accelerator's compiler, on the CPU: by `backend="accel"`, and by default."""

import threading

import pytest

pytest.importorskip("torch")

import torch
from accel_tests.children import clean_environment, run_python

import accel_core
from accel_core.errors import UnsupportedError
from accel_train import default_compiler
from accel_train.compiling import while_training

settable = pytest.mark.skipif(
    not hasattr(torch.compiler, "set_default_backend"), reason="this torch has no default to set: before 2.13"
)


@pytest.fixture
def acc():
    """The CPU as the chosen accelerator, with a compiler that needs none of C++."""
    with accel_core.use_accelerator(accel_core.accelerator("cpu")) as chosen:
        before = chosen.get_compile_backend()
        chosen.set_compile_backend("aot_eager")
        torch._dynamo.reset()
        yield chosen
        chosen._compile_backend = before


def through_the_door(**options):
    return torch.compile(lambda x: x + 1, backend="accel", **options)(torch.ones(1))


def default():
    return torch.compiler.get_default_backend()


def test_options_and_mode_reach_the_compiler(acc):
    given = []

    def compiler(graph, inputs, **options):
        given.append(options)
        return graph.forward

    torch._dynamo.register_backend(compiler, name="remembers")
    try:
        acc.set_compile_backend("remembers")
        for more in ({}, {"mode": "max-autotune"}, {"options": {"a": 1}}):
            through_the_door(**more)
    finally:
        registry = torch._dynamo.backends.registry
        del registry._BACKENDS["remembers"], registry._COMPILER_FNS["remembers"]
    assert given == [{}, {"mode": "max-autotune"}, {"options": {"a": 1}}]


@settable
def test_the_default_is_the_accelerators_in_the_block_alone(acc):
    assert default() == "inductor"
    with default_compiler() as name:
        assert name == default() == "aot_eager"
        compiled = torch.compile(lambda x: x * 2)
        torch.compiler.set_default_backend("eager")
        acc.set_compile_backend("aot_eager_decomp_partition")
        with default_compiler():
            assert default() == "aot_eager_decomp_partition"
        assert default() == "eager"
    assert default() == "inductor"
    assert compiled(torch.ones(1)).item() == 2

    @default_compiler(acc)
    def inside():
        raise ZeroDivisionError(default())

    with pytest.raises(ZeroDivisionError, match="aot_eager_decomp_partition"):
        inside()
    assert default() == "inductor"


@settable
def test_blocks_of_threads_may_end_in_any_order(acc):
    seen = []
    first = default_compiler(acc)  # by name: a choice for a block is this thread's alone
    first.__enter__()
    acc.set_compile_backend("eager")
    second = default_compiler(acc)
    for step in (second.__enter__, lambda: first.__exit__(None, None, None)):
        thread = threading.Thread(target=lambda step=step: (step(), seen.append(default())))
        thread.start()
        thread.join()
    second.__exit__(None, None, None)
    assert seen == ["eager", "eager"]
    assert default() == "inductor"


@settable
def test_an_integration_leaves_a_default_that_somebody_set(acc):
    with while_training(acc):
        assert default() == "inductor"  # torch's own is right for the CPU
        torch.compiler.set_default_backend("eager")
        with while_training(acc):
            assert default() == "eager"
        torch.compiler.set_default_backend(None)


UNLISTED = [
    ("unheard_of", r"which torch._dynamo.list_backends\(None\) lacks"),
    ("accel", "a name that stands for that compiler"),
]


@pytest.mark.parametrize(("named", "why"), UNLISTED)
def test_a_compiler_that_torch_does_not_list_is_one_sentence(acc, named, why):
    acc._compile_backend = named  # as from a declaration
    for attempt in (default_compiler().__enter__, through_the_door):
        with pytest.raises(Exception, match=f"cpu declares the compiler '{named}', {why}") as raised:
            attempt()
        found = getattr(raised.value, "inner_exception", raised.value)  # torch wraps what a backend raises
        assert isinstance(found, UnsupportedError)


def test_torch_without_a_default_says_how_to_name_the_compiler(acc, monkeypatch):
    monkeypatch.delattr(torch.compiler, "set_default_backend", raising=False)
    with pytest.raises(UnsupportedError, match=r'Name the compiler: torch.compile\(model, backend="accel"\)'):
        default_compiler().__enter__()
    with while_training(acc):  # an integration goes on
        pass
    acc.set_compile_backend("inductor")
    with default_compiler() as name:  # as there is nothing to set
        assert name == "inductor"


def test_a_choice_that_fails_is_said_and_nothing_is_set():
    code = """
import torch, accel_train
for attempt in (lambda: torch.compile(lambda x: x + 1, backend='accel')(torch.ones(1)),
                lambda: accel_train.default_compiler().__enter__()):
    try: attempt()
    except Exception as error: print(type(error).__name__, str(error).replace('\\n', ' '))
print(getattr(torch.compiler, 'get_default_backend', lambda: 'inductor')())
"""
    ended = run_python(["-c", code], clean_environment(DS_ACCELERATOR="nosuch")).succeeded()
    door, block, after = ended.stdout.splitlines()
    assert door.startswith("BackendCompilerFailed backend='accel' raised: BackendNotFoundError: ")
    assert "nosuch" in door
    assert block.startswith("BackendNotFoundError ")
    assert after == "inductor"
