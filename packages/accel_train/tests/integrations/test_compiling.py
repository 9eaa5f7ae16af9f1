"""torch.compile on the CPU, with the compiler of the chosen accelerator."""

import threading

import pytest

pytest.importorskip("torch")

import torch
from accel_tests.children import clean_environment, run_python

import accel_core
from accel_core.errors import UnsupportedError
from accel_train import default_compiler
from accel_train.compiling import default_compiler_for_integration

settable = pytest.mark.skipif(
    not hasattr(torch.compiler, "set_default_backend"),
    reason="this torch has no default to set: before 2.13",
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


def by_the_hook(**options):
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
            by_the_hook(**more)
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
    first = default_compiler(
        acc
    )  # by name: a choice for a block is this thread's alone
    first.__enter__()
    acc.set_compile_backend("eager")
    second = default_compiler(acc)
    for step in (second.__enter__, lambda: first.__exit__(None, None, None)):
        thread = threading.Thread(
            target=lambda step=step: (step(), seen.append(default()))
        )
        thread.start()
        thread.join()
    second.__exit__(None, None, None)
    assert seen == ["eager", "eager"]
    assert default() == "inductor"


@settable
def test_an_integration_leaves_a_default_that_somebody_set(acc):
    with default_compiler_for_integration(acc):
        assert default() == "inductor"  # torch's own is right for the CPU
        torch.compiler.set_default_backend("eager")
        with default_compiler_for_integration(acc):
            assert default() == "eager"
        torch.compiler.set_default_backend(None)


UNLISTED = [
    ("unheard_of", r"but torch._dynamo.list_backends\(None\) does not list"),
    (
        "accel",
        "but this name is only an alias for the compiler that an accelerator declares",
    ),
]


@pytest.mark.parametrize(("named", "why"), UNLISTED)
def test_a_compiler_that_torch_does_not_list_is_one_sentence(acc, named, why):
    acc._compile_backend = named  # as from a declaration
    for attempt in (default_compiler().__enter__, by_the_hook):
        with pytest.raises(
            Exception, match=f"cpu declares the compiler '{named}', {why}"
        ) as raised:
            attempt()
        found = getattr(
            raised.value, "inner_exception", raised.value
        )  # torch wraps what a backend raises
        assert isinstance(found, UnsupportedError)


def test_torch_without_a_default_says_how_to_name_the_compiler(acc, monkeypatch):
    monkeypatch.delattr(torch.compiler, "set_default_backend", raising=False)
    with pytest.raises(
        UnsupportedError,
        match=r'Next step: name the compiler: torch.compile\(model, backend="accel"\)',
    ):
        default_compiler().__enter__()
    default_compiler_for_integration(acc).__enter__()  # an integration goes on
    acc.set_compile_backend("inductor")
    assert default_compiler().__enter__() == "inductor"  # as there is nothing to set


def test_a_choice_that_fails_is_said_and_nothing_is_set():
    code = """
import torch, accel_train
for attempt in (lambda: torch.compile(lambda x: x + 1, backend='accel')(torch.ones(1)),
                lambda: accel_train.default_compiler().__enter__()):
    try: attempt()
    except Exception as error: print(type(error).__name__, str(error).replace('\\n', ' '))
print(getattr(torch.compiler, 'get_default_backend', lambda: 'inductor')())
"""
    ended = run_python(
        ["-c", code], clean_environment(DS_ACCELERATOR="nosuch")
    ).succeeded()
    hook, block, after = ended.stdout.splitlines()
    assert hook.startswith(
        "BackendCompilerFailed backend='accel' raised: BackendNotFoundError: "
    )
    assert "nosuch" in hook
    assert block.partition(" ")[0] == "BackendNotFoundError"
    assert after == "inductor"


def test_a_block_that_is_open_when_python_ends_says_nothing():
    code = """
import accel_train
block = accel_train.default_compiler()
block.itself = block  # collected after torch's modules
block.__enter__()
"""
    assert (
        not run_python(["-c", code], clean_environment(DS_ACCELERATOR="cpu"))
        .succeeded()
        .stderr
    )
