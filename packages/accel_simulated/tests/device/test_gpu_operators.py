"""Operators that torch has for GPUs only."""

from pathlib import Path

import pytest

PROGRAMS = Path(__file__).with_name("programs")


@pytest.fixture(scope="session")
def batch_norm(simulated, shared_by_workers):
    """The comparison of synchronized batch norm with batch norm, of one process."""
    program = PROGRAMS / "synchronized_batch_norm.py"
    return shared_by_workers("batch-norm", lambda: simulated("acme", program).answer)


def test_synchronized_batch_norm_equals_batch_norm_of_all_rows(batch_norm):
    assert batch_norm["equal"] == {
        "out": True,
        "running mean": True,
        "running variance": True,
        "gradient of the input": True,
        "gradient of the weight": True,
        "gradient of the bias": True,
    }


def test_synchronized_batch_norm_of_bfloat16_has_float32_statistics(batch_norm):
    assert batch_norm["type of the statistics of bfloat16"] == "torch.float32"
    assert batch_norm["type of the output of bfloat16"] == "torch.bfloat16"


def test_softmax_of_float16_in_float32_equals_the_cpu(simulated):
    equal = {"dtype": "torch.float32", "equal": True, "equal gradient": True}
    answer = simulated("cuda", PROGRAMS / "softmax_of_float16.py").answer
    assert answer == {"softmax": equal, "log_softmax": equal}


#: The beginning of the error of each call in the program.
UNSUPPORTED = {
    "fused kernel": "NotImplementedError: aten::_fused_dropout is not simulated: ",
    "CPU generator": "RuntimeError: Expected a 'acme' device type for generator but found 'cpu'",
    "sending a tensor": "UnsupportedError: a tensor on acme:0 cannot be sent to another process: ",
    "DataParallel": "UnsupportedError: torch.nn.DataParallel ",
}  # fmt: skip


@pytest.fixture(scope="session")
def unsupported(simulated, shared_by_workers):
    """The errors of functions that only CUDA devices support, of one process."""
    program = PROGRAMS / "unsupported_on_acme.py"
    return shared_by_workers("unsupported", lambda: simulated("acme", program).answer)


@pytest.mark.parametrize("call", UNSUPPORTED)
def test_a_function_for_cuda_alone_raises_an_error_that_names_it(unsupported, call):
    assert unsupported[call].startswith(UNSUPPORTED[call])


def test_the_error_of_data_parallel_names_the_replacement(unsupported):
    assert "DistributedDataParallel" in unsupported["DataParallel"]


def test_a_product_of_float16_can_have_a_float32_result(unsupported):
    assert unsupported["dtype of a product with out_dtype"] == "torch.float32"
