"""What the program's own signal handler raises is the program's, whatever accel-train or a plugin does."""

import signal
import threading
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace as Of
from typing import NamedTuple

import pytest

torch = pytest.importorskip("torch")


class Late(TimeoutError, RuntimeError):
    """Of both kinds that networks, files and devices raise too."""


class Chain:
    """Has every member; the signal comes when one is called."""

    def __getattr__(self, name):
        return Chain()

    def __call__(self, *_, **__):
        signal.raise_signal(signal.SIGUSR1)


HIT = Chain()
LASTING = Of(join=id, is_alive=lambda: True)
WAITING = {"_wait_for_inputs": id, "_order": 0, "_buffers": {}, "_under_way": {}}
GIVEN = {
    "HIT": HIT,
    "Of": Of,
    "Path": Path,
    "X": Of(
        device_type="x", backend=Of(compile_backend="inductor"), get_compile_backend=lambda: "inductor",
        is_accelerator=lambda: 1, pin_memory=HIT, is_pinned=id,
    ),
    "ASK": lambda _: GIVEN["X"],
    "CPU": Of(device_name=lambda: "cpu", communication_backend_name=lambda: "ccl"),
    "JOB": Of(hosts=["a", "a"], name="", port=1),
    "PIPE": Of(_lock=threading.Lock(), _closed=0, _in=Of(put=id), _abort=HIT, _threads=[LASTING], **WAITING),
    "HURT": type("Hurt", (), {"version": property(HIT)})(),
    "on": lambda kind: type("On", (kind,), dict(BARE))(),
}  # fmt: skip
BARE = {"device_module": HIT, "supports_nvtx_domain": 0, "_knows_compilers": 0, "__init__": lambda _: None}


class Case(NamedTuple):
    """A call during which the signal comes; expressions know the names of the module, and `GIVEN`."""

    module: str
    call: str
    #: What is replaced meanwhile, and by which expression: names of the module, or torch's with their path.
    replaced: Mapping[str, str] = {}


CASES = [
    Case(
        "accel_train.loading",
        "can_pin_memory(X)",
        {"current_torch_accelerator": "lambda torch: Of(type='x')"},
    ),
    Case(
        "accel_train.staged.arithmetic",
        "_gloo_has.__wrapped__(torch.bool)",
        {"c10d.ProcessGroupGloo.allreduce": "HIT"},
    ),
    Case("accel_train.staged.host", "Buffers(Of(pin_empty=HIT)).take(1)"),
    Case("accel_train.staged.pipeline", "Pipeline.close(PIPE)"),
    Case("accel_train.staged.pipeline", "Pipeline._pass(PIPE, HIT, Of(end=id))"),
    Case("accel_train.staged.pipeline", "Pipeline._leave(PIPE, HIT, Of(end=id), inline=True)"),
    Case(
        "accel_train.staged.pipeline",
        "PeerWork._leave(Of(_operation=HIT, _order=0, _buffers=0, end=id), None)",
    ),
    Case("accel_train.ops.compiler", "_output_of(['cc'])", {"subprocess.run": "HIT"}),
    Case(
        "accel_train.ops.cache",
        "Entry._locked(Of(folder=Path('x'), name='x'), print).__enter__()",
        {"os.open": "HIT"},
    ),
    Case(
        "accel_train.ops.builder",
        "OpBuilder._load_ahead_of_time(Of(absolute_name=str))",
        {"importlib.import_module": "HIT"},
    ),
    Case(
        "accel_train.child_accelerator",
        "call_on_accelerator(id, {}, Of(asked=''), timeout=1)",
        {"child.run": "HIT"},
    ),
    Case("accel_train.launch.agreement", "_attend(HIT, Of(rank=1), '', 1.0)"),
    Case("accel_train.launch.agreement", "Exchanged('', b'', 2, HIT).depart_last()"),
    Case("accel_train.launch.rendezvous", "_meeting_errors(0, 'env://', 0, False)(lambda: HIT())()"),
    Case(
        "accel_train.launch.process_group",
        "_line(Of(rank=0), JOB, 0, 0, 0)",
        {"speakers": "lambda _: 'b'", "_ports_of_speakers": "HIT"},
    ),
    Case("accel_train.launch.process_group", "_line(Of(rank=0), JOB, 0, HIT, Of(total_seconds=int))"),
    Case(
        "accel_train.launch.line", "call(['127.0.0.1'], 1, '', 1, 1.0)", {"socket.create_connection": "HIT"}
    ),
    Case("accel_train.launch.line", "_introduced(HIT, '', 1, 1.0)"),
    Case("accel_train.launch.launch", "_pci(HIT, 0)"),
    Case("accel_train.launch.communication", "prepared(CPU)", {"import_module": "HIT"}),
    Case(
        "accel_train.doors.dynamo",
        "accel(0, [])",
        {"_accelerator_of": "ASK", "register": "ASK", "torch._TorchCompileInductorWrapper": "HIT"},
    ),
    Case("accel_train.doors._warned", "warned('Ray', '')(lambda: HIT())()"),
    Case("accel_train.deepspeed.adapter", "_object(type('A', (), {'__init__': HIT}))"),
    Case("accel_train.deepspeed.op_builders", "_complaint(HIT)"),
    Case("accel_train.unused", "tell()", {"_chosen": "HIT", "_speaks": "lambda: True"}),
    Case("accel_npu.checks", "torch_npu_version()", {"metadata.distributions": "lambda **_: [HURT]"}),
    Case("accel_hpu.accelerator", "module_ids()", {"subprocess.run": "HIT"}),
    Case("accel_sdaa.accelerator", "on(SDAAAccelerator).set_compile_backend('x')", {"import_module": "HIT"}),
    *(
        Case(f"accel_{kind}.accelerator", f"on({kind.upper()}Accelerator).{call}")
        for kind in ("cuda", "mlu", "npu", "supa")
        for call in ("range_push('x')", "range_pop()")
    ),
    *(
        Case(f"accel_{kind}.accelerator", f"on({kind.upper()}Accelerator).communication_backend_version()")
        for kind in ("mlu", "musa", "npu", "supa")
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.module}-{case.call}")
def test_the_program_gets_what_its_handler_raised(handler, monkeypatch, case):
    module = import_module(case.module)
    for name, expression in case.replaced.items():
        value = eval(expression, {**vars(module), **GIVEN})
        monkeypatch.setattr(name if "torch." in name else f"{case.module}.{name}", value)
    given = iter([Late("too late")])

    def once(*_):
        for error in given:
            raise error

    handler(once)
    with pytest.raises(Late, match="too late"):
        eval(case.call, {**vars(module), **GIVEN})
