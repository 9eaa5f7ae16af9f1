"""What the program's own signal handler raises is the program's, whatever accel-train or a plugin does."""

import signal
import threading
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace as Of

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
#: The module (accel_train's without its name), what runs there, and what is exchanged for that.
ROWS = """
loading | can_pin_memory(X) | torchs_device = lambda torch: Of(type='x')
staged.arithmetic | _gloo_has.__wrapped__(torch.bool) | c10d.ProcessGroupGloo.allreduce = HIT
staged.host | Buffers(Of(pin_empty=HIT)).take(1)
staged.pipeline | Pipeline.close(PIPE)
staged.pipeline | Pipeline._pass(PIPE, HIT, Of(end=id))
staged.pipeline | Pipeline._leave(PIPE, HIT, Of(end=id), inline=True)
staged.pipeline | PeerWork._leave(Of(_operation=HIT, _order=0, _buffers=0, end=id), None)
ops.compiler | _output_of(['cc']) | subprocess.run = HIT
ops.cache | Entry._locked(Of(folder=Path('x'), name='x'), print).__enter__() | os.open = HIT
ops.builder | OpBuilder._load_ahead_of_time(Of(absolute_name=str)) | importlib.import_module = HIT
child_accelerator | call_on_accelerator(id, {}, Of(asked=''), timeout=1) | child.run = HIT
launch.agreement | _attend(HIT, Of(rank=1), '', 1.0)
launch.agreement | Exchanged('', b'', 2, HIT).depart_last()
launch.rendezvous | _meeting_errors(0, 'env://', 0, False)(lambda: HIT())()
launch.process_group | _line(Of(rank=0), JOB, 0, 0, 0) | speakers = lambda _: 'b'; _ports_of_speakers = HIT
launch.process_group | _line(Of(rank=0), JOB, 0, HIT, Of(total_seconds=int))
launch.line | call(['127.0.0.1'], 1, '', 1, 1.0) | socket.create_connection = HIT
launch.line | _introduced(HIT, '', 1, 1.0)
launch.launch | _pci(HIT, 0)
launch.communication | prepared(CPU) | import_module = HIT
doors.dynamo | accel(0, []) | _accelerator_of = ASK; register = ASK; torch._TorchCompileInductorWrapper = HIT
doors._warned | warned('Ray', '')(lambda: HIT())()
deepspeed.adapter | _object(type('A', (), {'__init__': HIT}))
deepspeed.op_builders | _complaint(HIT)
unused | tell() | _chosen = HIT; _speaks = lambda: True
accel_npu.checks | torch_npu_version() | metadata.distributions = lambda **_: [HURT]
accel_hpu.accelerator | module_ids() | subprocess.run = HIT
accel_sdaa.accelerator | on(SDAAAccelerator).set_compile_backend('x') | import_module = HIT
"""


RANGES = [(kind, f"range_{did}") for kind in ("cuda", "mlu", "npu", "supa") for did in ("push('x'", "pop(")]
ASKED = [*RANGES, *((kind, "communication_backend_version(") for kind in ("mlu", "musa", "npu", "supa"))]
MEMBERS = [f"accel_{kind}.accelerator | on({kind.upper()}Accelerator).{ask})" for kind, ask in ASKED]


@pytest.mark.parametrize("row", [*ROWS.strip().splitlines(), *MEMBERS])
def test_the_program_gets_what_its_handler_raised(handler, monkeypatch, row):
    module, code, *exchanged = row.split(" | ")
    module = module if module.startswith("accel_") else f"accel_train.{module}"
    known = {**vars(import_module(module)), **GIVEN}
    for each in exchanged and exchanged[0].split("; "):
        name, value = each.split(" = ")
        monkeypatch.setattr(name if "torch." in name else f"{module}.{name}", eval(value, known))
    known = {**vars(import_module(module)), **GIVEN}
    given = iter([Late("too late")])

    def once(*_):
        for error in given:
            raise error

    handler(once)
    with pytest.raises(Late, match="too late"):
        eval(code, known)
