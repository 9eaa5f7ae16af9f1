"""`CUDAAccelerator` on a real device. What is compared with eager work is exact: small whole numbers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from importlib.util import find_spec

import pytest

torch = pytest.importorskip("torch")

from accel_core import hint_for  # noqa: E402
from accel_cuda import CUDA, ROCM  # noqa: E402
from accel_cuda.accelerator import CUDAAccelerator  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch reports no CUDA or ROCm device here"),
]

MIB = 2**20
BACKEND = ROCM if torch.version.hip else CUDA
on_nvidia = pytest.mark.skipif(torch.version.hip is not None, reason="NVIDIA only")


@pytest.fixture(scope="module")
def acc():
    return CUDAAccelerator(BACKEND)


def whole_numbers(*shape):
    """Values of which any sum of products here is exact in float32, and in TF32."""
    return torch.randint(-3, 4, shape, device="cuda").float()


class TestDevices:
    def test_there_is_one(self, acc):
        assert acc.is_available() is True
        assert type(acc.device_count()) is int
        assert acc.device_count() == torch.cuda.device_count() >= 1

    def test_names_and_values(self, acc):
        index = acc.current_device()
        assert type(index) is int
        assert acc.current_device_name() == acc.device_name(index) == f"cuda:{index}"
        assert acc.device(index) == torch.device("cuda", index)

    def test_members_are_torchs_own_functions(self, acc):
        assert acc.current_device is torch.cuda.current_device
        assert acc.device_count is torch.cuda.device_count
        assert acc.Stream is torch.cuda.Stream
        assert acc.Event is torch.cuda.Event

    def test_selecting(self, acc):
        before, last = acc.current_device(), acc.device_count() - 1
        with acc.device_guard(last):
            assert acc.current_device() == last
        assert acc.current_device() == before
        acc.set_device(last)
        assert acc.current_device() == last
        acc.set_device(before)

    @pytest.mark.parametrize("index", [-1, 9999])
    def test_an_index_out_of_range(self, acc, index):
        with pytest.raises(ValueError, match="out of range"):
            acc.set_device(index)

    def test_synchronize(self, acc):
        acc.synchronize()
        acc.synchronize(acc.current_device())
        assert acc.is_initialized() is True

    def test_properties(self, acc):
        ours, theirs = acc.device_properties(0), torch.cuda.get_device_properties(0)
        assert ours.name == theirs.name
        assert ours.total_memory == acc.total_memory(0) == theirs.total_memory > 0
        assert ours.capability == torch.cuda.get_device_capability(0)
        assert ours.multiprocessors == theirs.multi_processor_count > 0
        assert re.fullmatch(r"(GPU|MIG)-[0-9A-Za-z-]+", ours.uuid)
        assert ours.pci_address is None or re.fullmatch(r"[0-9a-f]{4,}(:[0-9a-f]{2}){2}\.0", ours.pci_address)
        json.dumps(ours.to_dict())

    @pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="there is no nvidia-smi")
    def test_the_uuid_and_address_are_nvidia_smis(self, acc):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
        assert acc.device_uuid(0) in listed
        query = ["nvidia-smi", "--query-gpu=pci.bus_id", "--format=csv,noheader"]
        addresses = subprocess.run(query, capture_output=True, text=True, check=True).stdout.lower()
        address = acc.device_properties(0).pci_address
        assert address is None or address in addresses  # nvidia-smi writes a longer domain before it


class TestMemory:
    def test_free_and_total(self, acc):
        free, total = acc.mem_get_info()
        assert type(free) is type(total) is int
        assert 0 < free <= total
        assert acc.available_memory(0) <= total
        assert total == pytest.approx(acc.total_memory(), rel=0.05)

    def test_allocated_and_reserved(self, acc):
        before = acc.memory_allocated()
        block = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
        assert acc.memory_allocated() - before == 64 * MIB
        assert acc.memory_reserved() >= acc.memory_allocated()
        assert acc.memory_cached() == acc.memory_reserved()
        del block
        assert acc.memory_allocated() == before

    def test_cached_blocks_are_not_available_to_others(self, acc):
        block = torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")
        held = acc.memory_reserved()
        del block
        assert acc.memory_reserved() == held
        acc.empty_cache()
        assert acc.memory_reserved() <= held - 512 * MIB

    def test_peaks(self, acc):
        acc.reset_peak_memory_stats()
        before = acc.memory_allocated()
        block = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
        del block
        assert acc.max_memory_allocated() >= before + 64 * MIB
        assert acc.max_memory_reserved() >= acc.max_memory_allocated()
        assert acc.max_memory_cached() == acc.max_memory_reserved()
        for name in ("reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_memory_stats"):
            getattr(acc, name)()
            assert acc.max_memory_allocated() == acc.memory_allocated()

    def test_stats(self, acc):
        stats = acc.memory_stats()
        assert stats["allocated_bytes.all.current"] == acc.memory_allocated()
        assert stats["reserved_bytes.all.peak"] == acc.max_memory_reserved()

    def test_the_share_of_a_process(self, acc):
        acc.set_per_process_memory_fraction(0.9)
        acc.set_per_process_memory_fraction(1.0, acc.current_device())

    def test_running_out_is_explained(self, acc):
        with pytest.raises(torch.OutOfMemoryError) as caught:
            torch.empty(4 * acc.total_memory(), dtype=torch.uint8, device="cuda")
        assert "nvidia-smi" in hint_for(caught.value, BACKEND.hints)


class TestStreamsAndEvents:
    def test_work_on_a_stream_of_its_own(self, acc):
        left, right = whole_numbers(512, 64), whole_numbers(64, 512)
        stream, before = acc.Stream(), acc.current_stream()
        stream.wait_stream(before)
        with acc.stream(stream):
            assert acc.current_stream() == stream
            product = left @ right
        assert acc.current_stream() == before
        acc.current_stream().wait_stream(stream)
        assert torch.equal(product, left @ right)

    def test_no_stream_changes_nothing(self, acc):
        before = acc.current_stream()
        with acc.stream(None):
            assert acc.current_stream() == before

    def test_the_default_stream(self, acc):
        with acc.stream(acc.default_stream()):
            assert acc.current_stream() == acc.default_stream(acc.current_device())

    def test_events_order_streams(self, acc):
        stream, event = acc.Stream(), acc.Event()
        acc.synchronize()
        with acc.stream(stream):
            values = whole_numbers(1024, 64) @ whole_numbers(64, 1024)
            event.record()
        acc.current_stream().wait_event(event)
        total = values.sum()
        event.synchronize()
        assert event.query() is True
        assert total.item() == values.cpu().sum().item()

    def test_events_time_work(self, acc):
        matrix = whole_numbers(2048, 2048)
        matrix @ matrix  # the first product also loads the library
        start, end = acc.Event(enable_timing=True), acc.Event(enable_timing=True)
        acc.synchronize()
        clock = time.perf_counter()
        start.record()
        for _ in range(10):
            matrix @ matrix
        end.record()
        end.synchronize()
        wall = (time.perf_counter() - clock) * 1e3
        assert 0 < start.elapsed_time(end) <= wall + 1

    def test_the_device_is_not_synchronous(self, acc):
        assert acc.is_synchronized_device() is False
        assert acc.use_host_timers() is False


class TestGraphs:
    @staticmethod
    def work(weight, values):
        return torch.relu(values @ weight) * 2 + 1

    def capture(self, acc, weight, values, **given):
        stream = acc.Stream()
        stream.wait_stream(acc.current_stream())
        with acc.stream(stream):  # torch asks for a warm-up on a side stream
            for _ in range(3):
                self.work(weight, values)
        acc.current_stream().wait_stream(stream)
        graph = acc.create_graph()
        with acc.capture_to_graph(graph, **given):
            assert acc.is_current_stream_capturing() is True
            result = self.work(weight, values)
        assert acc.is_current_stream_capturing() is False
        return graph, result

    def test_a_replay_equals_eager_work(self, acc):
        assert acc.supports_graphs() is True
        weight, values = whole_numbers(64, 32), whole_numbers(128, 64)
        graph, result = self.capture(acc, weight, values)
        for _ in range(3):
            values.copy_(whole_numbers(128, 64))
            acc.replay_graph(graph)
            acc.synchronize()
            assert torch.equal(result, self.work(weight, values))

    def test_pool_and_stream(self, acc):
        weight, values = whole_numbers(64, 32), whole_numbers(128, 64)
        stream = acc.Stream()
        first, one = self.capture(acc, weight, values, stream=stream)
        second, two = self.capture(acc, weight, values, pool=first.pool(), stream=stream)
        for graph in (first, second):
            acc.replay_graph(graph)
        acc.synchronize()
        assert torch.equal(two, self.work(weight, values))
        assert one.shape == two.shape

    def test_without_a_graph_the_work_runs(self, acc):
        with acc.capture_to_graph(None):
            value = whole_numbers(4).sum()
        assert value.item() == int(value.item())
        acc.replay_graph(None)


class TestRandomNumbers:
    def test_a_state_restores_the_stream(self, acc):
        acc.manual_seed(7)
        state = acc.get_rng_state()
        assert (state.dtype, state.device.type) == (torch.uint8, "cpu")
        first = torch.randn(1000, device="cuda")
        second = torch.randn(1000, device="cuda")
        acc.set_rng_state(state)
        assert torch.equal(torch.randn(1000, device="cuda"), first)
        assert torch.equal(torch.randn(1000, device="cuda"), second)

    def test_by_index(self, acc):
        index = acc.current_device()
        state = acc.get_rng_state(index)
        first = torch.randn(10, device="cuda")
        acc.set_rng_state(state, index)
        assert torch.equal(torch.randn(10, device="cuda"), first)

    def test_seeds(self, acc):
        acc.manual_seed_all(1234)
        assert acc.initial_seed() == 1234
        assert acc.default_generator(acc.current_device()).initial_seed() == 1234

    def test_a_fork_of_the_generators_leaves_no_trace(self, acc):
        acc.manual_seed(3)
        expected = torch.randn(10, device="cuda")
        acc.manual_seed(3)
        with acc.fork_rng():
            torch.randn(99, device="cuda")
        assert torch.equal(torch.randn(10, device="cuda"), expected)


class TestPinnedMemory:
    def test_a_copy_from_pinned_memory(self, acc):
        values = torch.arange(1 << 20, dtype=torch.float32)
        assert acc.is_pinned(values) is False
        pinned = acc.pin_memory(values)
        assert acc.is_pinned(pinned) is True
        there = pinned.to("cuda", non_blocking=True)
        acc.synchronize()
        assert torch.equal(there.cpu(), values)
        acc.unpin_memory(pinned)

    def test_empty_pinned_memory(self, acc):
        template = torch.ones(4, 8)
        assert acc.pin_memory(template, make_copy=False).shape == (4, 8)
        flat = acc.pin_memory(template, make_copy=False, match_shape=False)
        assert flat.shape == (32,)
        assert acc.is_pinned(flat)

    def test_registered_memory(self, acc):
        values = torch.arange(4 * MIB, dtype=torch.float32)
        address, size = values.data_ptr(), values.numel() * values.element_size()
        assert acc.register_host_memory(address, size) is True
        try:
            assert acc.is_pinned(values) is True
            there = values.to("cuda", non_blocking=True)
            acc.synchronize()
            assert torch.equal(there.cpu(), values)
        finally:
            acc.unregister_host_memory(address)
        assert acc.is_pinned(values) is False


class TestDataTypes:
    @on_nvidia
    def test_by_capability(self, acc):
        capability = torch.cuda.get_device_capability()
        assert acc.is_fp16_supported() is (capability >= (7, 0))
        assert acc.is_bf16_supported() is True  # emulated below 8.0
        assert acc.is_bf16_native() is (capability >= (8, 0))
        assert acc.is_fp8_supported() is (capability >= (8, 9))
        assert acc.is_triton_supported() is (capability >= (8, 0) and find_spec("triton") is not None)

    def test_every_supported_type_computes(self, acc):
        assert acc.supported_dtypes()[0] is torch.float32
        for dtype in acc.supported_dtypes():
            matrix = torch.full((64, 64), 2, dtype=dtype, device="cuda")
            assert torch.equal(matrix @ matrix, torch.full_like(matrix, 256))

    def test_autocast(self, acc):
        matrix = torch.ones(32, 32, device="cuda")
        for dtype in acc.supported_dtypes()[1:]:
            with acc.autocast(dtype=dtype):
                assert (matrix @ matrix).dtype is dtype
        with acc.autocast(enabled=False):
            assert (matrix @ matrix).dtype is torch.float32

    def test_tensor_types(self, acc):
        kinds = {"FloatTensor": torch.float32, "LongTensor": torch.int64, "HalfTensor": torch.float16}
        for kind, dtype in kinds.items():
            tensor = getattr(acc, kind)([1, 2, 3])
            assert tensor.dtype is dtype
            assert acc.on_accelerator(tensor) is True
        assert acc.on_accelerator(torch.ones(1)) is False

    def test_every_flag_is_a_bool(self, acc):
        flags = acc.capabilities().to_dict()
        assert {type(flag) for flag in flags.values()} == {bool}
        assert flags["is_available"]
        assert flags["supports_graphs"]


class TestProfiling:
    def test_ranges(self, acc):
        acc.range_push("outer")
        acc.range_push("inner", category="phase")
        acc.range_pop()
        acc.range_pop()
        acc.range_pop()  # one too many
        with acc.range("a range"):
            whole_numbers(4).sum()

    @pytest.mark.skipif(find_spec("nvtx") is None, reason="the nvtx package is not installed")
    def test_domains(self, acc):
        assert acc.supports_nvtx_domain is True
        acc.range_push("forward", domain="accel-tests", category="engine")
        acc.range_push("same name elsewhere", domain="accel-tests-2")
        acc.range_pop(domain="accel-tests-2")
        acc.range_pop(domain="accel-tests")

    def test_deferred_calls_run_now(self, acc):
        acc.synchronize()
        ran = []
        acc.lazy_call(lambda: ran.append(True))
        assert ran == [True]
