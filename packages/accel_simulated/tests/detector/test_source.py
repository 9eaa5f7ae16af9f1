"""The names of CUDA that are read from source files."""

import pytest

from accel_simulated.detector import source

IMPORTS = """
import torch, torch.distributed as dist
from torch.backends import cudnn
from torch.library import register_kernel
"""


def _findings(tmp_path, code):
    """The findings in the code that follows the imports, with their kind and code."""
    file = tmp_path / "program.py"
    file.write_text(IMPORTS + code)
    return [(found.kind, found.what) for found in source.find_cuda_names(str(file))]


@pytest.mark.parametrize(
    ("code", "kind", "what"),
    [
        ('x.device.type == "cuda"', "ask", '"cuda"'),
        ('x.device.type in ("cuda", "xpu")', "ask", '"cuda"'),
        ('"cuda" in str(x.device)', "ask", '"cuda"'),
        ('device.startswith("cuda")', "ask", '"cuda"'),
        ('match device:\n    case "cuda": pass', "ask", '"cuda"'),
        ('sizes = {"cuda": 8}[device]', "ask", '"cuda"'),
        ('if dist.get_backend() == "nccl": pass', "ask", '"nccl"'),
        ("if storage.is_cuda: pass", "ask", ".is_cuda"),
        ("torch.version.cuda", "ask", "torch.version.cuda"),
        ("torch.backends.cuda.is_built()", "ask", "torch.backends.cuda.is_built()"),
        ('hasattr(torch._C, "_cuda_init")', "ask", '"_cuda_init"'),
        ("torch._C._cuda_init()", "call", "torch._C._cuda_init()"),
        ('dist._remote_device("rank:0/cuda:0")', "device", '"rank:0/cuda:0"'),
        ('at = [f"rank:{r}/cuda:{r}" for r in ranks]', "device", '"rank:{}/cuda:{}"'),
        ('register_kernel(op, "cuda")', "device", '"cuda"'),
        ('torch.library.Library("my", "IMPL", "CUDA")', "device", '"CUDA"'),
        ('default: str = "cuda"', "device", '"cuda"'),
        ('def f(device="cuda"): ...', "device", '"cuda"'),
        ("torch.random.fork_rng()", "device", "torch.random.fork_rng()"),
        ('set_default_tensor_type("torch.cuda.FloatTensor")', "type", '"torch.cuda.FloatTensor"'),
        ("torch.cuda.FloatTensor", "type", "torch.cuda.FloatTensor"),
        ("cudnn.benchmark = True", "setting", "torch.backends.cudnn.benchmark"),
        ('os.environ["NCCL_DEBUG"]', "setting", '"NCCL_DEBUG"'),
        ('run(env={"CUDA_VISIBLE_DEVICES": "0"})', "environment", '"CUDA_VISIBLE_DEVICES"'),
        ("run(env=dict(CUDA_VISIBLE_DEVICES='0'))", "environment", "CUDA_VISIBLE_DEVICES"),
        ('dist.new_subgroups(backend="nccl")', "collective", '"nccl"'),
        ("dist.Backend.NCCL", "collective", "torch.distributed.Backend.NCCL"),
        ("torch.get_autocast_gpu_dtype()", "call", "torch.get_autocast_gpu_dtype()"),
        ("torch.profiler.f(use_cuda=True)", "call", "torch.profiler.f(use_cuda=)"),
        ("class A:\n    def f(self):\n        self.net.is_cuda", "ask", ".is_cuda"),
        ("@torch.cuda.amp.custom_fwd\ndef f(): ...", "precision", "torch.cuda.amp.custom_fwd"),
        ("events.table(sort_by='self_cuda_time_total')", "device", '"self_cuda_time_total"'),
    ],
)  # fmt: skip
def test_a_name_of_cuda_is_found(code, kind, what, tmp_path):
    assert _findings(tmp_path, code) == [(kind, what)]


@pytest.mark.parametrize(
    "code",
    [
        "# device = 'cuda'",
        'def f():\n    """Run on cuda."""',
        'print("This needs a cuda device")',
        'parser.add_argument("--no-cuda")',
        'torch.is_autocast_enabled("xpu"), torch.random.fork_rng(device_type="xpu")',
        "use_cuda = args.cuda",
        "seed = states['torch_cuda_seed']",
        "stream: torch.cuda.Stream = None",
        "def f(stream: torch.cuda.Stream) -> torch.cuda.Event: ...",
        # The run records these calls.
        "torch.cuda.synchronize()",
        "with torch.cuda.amp.autocast(): model.cuda()",
        "from torch.cuda import amp",
        'torch.ones(2, device="xpu")',
        'torch.ones(2, device="cuda"',  # not Python
    ],
)
def test_other_text_is_left_out(code, tmp_path):
    assert _findings(tmp_path, code) == []


@pytest.mark.parametrize(
    ("code", "what", "is_the_same"),
    [
        ('f(\n    "cuda:0"\n)', '"cuda:0"', True),
        ('f(\n    f"cuda:{rank}"\n)', '"cuda:3"', True),
        ('f(\n    "nccl"\n)', 'init_process_group("nccl")', True),
        ("f(\n\ntorch.cuda.Stream)", "torch.cuda.streams.Stream()", True),
        ("f(\n\nx.is_cuda)", ".is_cuda", True),
        ("f(\n\nx.is_cuda)", ".cuda()", False),
        ('f(\n    "cuda"\n)', "torch.xpu.synchronize()", False),
        # The lines of an `if` statement end before its body.
        ('\nif f("cuda"):\n    f("cuda")', '"cuda"', True),
        ('if f():\n\n    f("cuda")', '"cuda"', False),
    ],
)
def test_a_place_that_the_run_recorded_is_recognized(code, what, is_the_same, tmp_path):
    """Although the run records the line on which the call begins."""
    file = tmp_path / "program.py"
    file.write_text(f"import torch\n{code}\n")
    first, *_ = source.find_cuda_names(str(file))
    is_in_header = code.startswith("\nif")
    line = 3 if is_in_header else 2
    assert first.is_recorded_as(line, what) is is_the_same


def test_a_file_that_cannot_be_read_has_no_names(tmp_path):
    assert source.find_cuda_names(str(tmp_path / "no_such_file.py")) == []
    (tmp_path / "latin.py").write_bytes(b"x = 'cuda \xe9'")
    assert source.find_cuda_names(str(tmp_path / "latin.py")) == []
