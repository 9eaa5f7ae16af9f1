"""Lightning in ranks, and in shards: as Lightning's own DDP and FSDP2 do on the CPU.

Lightning has no FSDP on the CPU to compare with, since torch has none; DDP does the same sums. Ranks are from
each launcher. One process, and two: each goes on from the other's checkpoints, of either device.
"""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("lightning")
pytest.importorskip("sklearn")


SCRIPT = "lightning_ranks.py"
ON_CPU = {"environ": {"DS_ACCELERATOR": "cpu"}}
CPU = {"own": True, **ON_CPU}
DDP = {"strategy": "ddp"}
FSDP = {"strategy": "fsdp"}
FSDP2 = {"strategy": "model_parallel"}
IN_SHARDS = {"sharded": True}


class Runs:
    """Trainings by where they ran: answers of every rank, and their checkpoints."""

    def __init__(self, folder, start):
        self._folder, self._start = folder, start
        self.answers = {}

    def run(self, where, trainings, **how):
        """Train in a process, or in two where the name has that number."""
        folder = self._folder / where
        folder.mkdir()
        how = {"torchrun": "2" in where, **how}
        self.answers[where] = self._start(
            SCRIPT, folder=str(folder), trainings=trainings, **how
        )

    def saved(self, where, job):
        """The argument that goes on from a checkpoint."""
        return {"resume": str(self._folder / where / job / "saved")}

    def of(self, where, job):
        """What each rank saw, but for the device, and norms, which shards sum in another order."""
        left_out = ("devices", "backend", "norms")
        return [
            {k: v for k, v in answer[job].items() if k not in left_out}
            for answer in self.answers[where]
        ]

    def devices(self, where):
        """Each rank's devices in all its trainings."""
        return [
            {d for job in answer.values() for d in job["devices"]}
            for answer in self.answers[where]
        ]


@pytest.fixture(scope="module")
def runs(ranks, tmp_path_factory):
    """All trainings; later ones go on from checkpoints of earlier ones."""
    runs = Runs(tmp_path_factory.mktemp("sharded"), ranks)
    saved = runs.saved
    runs.run("cpu 1", {"ddp": DDP, "fsdp2 in shards": FSDP2 | IN_SHARDS}, **CPU)
    runs.run(
        "cpu 2",
        {
            "ddp": DDP,
            "fsdp2": FSDP2,
            "fsdp2 in shards": FSDP2 | IN_SHARDS,
            "fsdp2 bf16": FSDP2 | {"precision": "bf16-mixed"},
            "fabric ddp": DDP | {"fabric": True},
            "ddp from cpu 2": DDP | saved("cpu 2", "ddp"),
            "ddp from cpu 1": DDP | saved("cpu 1", "ddp"),
        },
        **CPU,
    )
    runs.run(
        "acme 2",
        {
            "fabric ddp": DDP | {"fabric": True},
            "fsdp": FSDP,
            "fsdp in shards": FSDP | IN_SHARDS,
            "fsdp2": FSDP2,
            "fsdp2 in shards": FSDP2 | IN_SHARDS,
            "fsdp bf16": FSDP | {"precision": "bf16-mixed"},
            "fsdp2 bf16": FSDP2 | {"precision": "bf16-mixed"},
            "fsdp fp16": FSDP | {"precision": "16-mixed"},
            "fsdp over a mesh": FSDP | {"mesh": [1, 2]},
            "fabric fsdp over a mesh": FSDP | {"mesh": [1, 2], "fabric": True},
            "fsdp by string": {"strategy": "accel_fsdp"},
            "fabric fsdp": FSDP | {"fabric": True},
            "fabric fsdp2": FSDP2 | {"fabric": True},
            "fsdp from cpu 2": FSDP | saved("cpu 2", "ddp"),
            "fsdp2 from cpu 1's shards": FSDP2 | saved("cpu 1", "fsdp2 in shards"),
        },
    )
    runs.run(
        "acme 1",
        {
            "fsdp": FSDP,
            "fsdp2": FSDP2,
            "fsdp from acme 2's shards": FSDP | saved("acme 2", "fsdp in shards"),
        },
    )
    runs.run(
        "cpu 1 again",
        {
            "ddp from cpu 2": DDP | saved("cpu 2", "ddp"),
            "ddp from acme 2": DDP | saved("acme 2", "fsdp"),
            "fsdp2 from acme 2's shards": FSDP2 | saved("acme 2", "fsdp2 in shards"),
        },
        **CPU,
    )
    # By Lightning's own launcher, and by torchrun that shows each rank one device.
    auto = {"strategy": "auto"}
    runs.run(
        "cpu 2, launched", {"ddp": auto | {"devices": 2}}, torchrun=False, **ON_CPU
    )
    runs.run("acme 2, launched", {"ddp": auto | {"devices": "auto"}}, torchrun=False)
    runs.run("acme 2, one each", {"ddp": auto}, environ={"ACCEL_SIMULATE": "acme:1"})
    return runs


def test_each_rank_has_its_device(runs):
    assert runs.devices("acme 2") == [{"acme:0"}, {"acme:1"}]
    assert runs.devices("acme 1") == [{"acme:0"}]
    assert runs.devices("cpu 2") == [{"cpu"}, {"cpu"}]
    assert runs.devices("acme 2, one each") == [{"acme:0"}, {"acme:0"}]


@pytest.mark.parametrize(
    ("where", "backend"),
    [
        ("cpu 2, launched", "gloo"),
        ("acme 2, launched", "accl"),
        ("acme 2, one each", "accl"),
    ],
)
def test_two_ranks_of_each_launcher_equal_lightnings_own(where, backend, runs):
    assert runs.of(where, "ddp") == runs.of("cpu 2", "ddp")
    assert {answer["ddp"]["backend"] for answer in runs.answers[where]} == {backend}


@pytest.mark.parametrize(
    "way",
    [
        "1 fsdp",
        "1 fsdp2",
        "2 fsdp",
        "2 fsdp2",
        "2 fsdp over a mesh",
        "2 fsdp by string",
    ],
)
def test_an_epoch_equals_the_cpus(way, runs):
    count, _, job = way.partition(" ")
    expected = runs.of(f"cpu {count}", "ddp")
    assert (
        count == "1" or runs.of("cpu 2", "fsdp2") == expected
    )  # so DDP is a fair reference
    assert runs.of(f"acme {count}", job) == expected
    assert expected[0]["accuracy"] > 0.8


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "fsdp2", "fsdp over a mesh"])
def test_fabric_equals_the_cpus(strategy, runs):
    mine, theirs = ("acme 2", f"fabric {strategy}"), ("cpu 2", "fabric ddp")
    assert runs.of(*mine) == runs.of(*theirs)
    norms = [
        torch.tensor([a[job]["norms"] for a in runs.answers[where]])
        for where, job in (mine, theirs)
    ]
    torch.testing.assert_close(*norms, rtol=1e-5, atol=0)
    assert (norms[0][:, 0::2] > norms[0][:, 1::2]).all(), "clipping changed nothing"


def test_mixed_precision_is_the_devices(runs):
    assert runs.of("acme 2", "fsdp2 bf16") == runs.of("cpu 2", "fsdp2 bf16")
    for job, dtype in (("fsdp bf16", "bfloat16"), ("fsdp fp16", "float16")):
        (first, second) = runs.of("acme 2", job)
        assert first["dtypes"] == [f"torch.{dtype}"]
        assert first["accuracy"] == second["accuracy"] > 0.8


@pytest.mark.parametrize(
    ("where", "job", "reference"),
    [
        ("acme 2", "fsdp from cpu 2", ("cpu 2", "ddp from cpu 2")),
        ("acme 2", "fsdp2 from cpu 1's shards", ("cpu 2", "ddp from cpu 1")),
        ("acme 1", "fsdp from acme 2's shards", ("cpu 1 again", "ddp from cpu 2")),
        ("cpu 1 again", "ddp from acme 2", ("cpu 1 again", "ddp from cpu 2")),
        (
            "cpu 1 again",
            "fsdp2 from acme 2's shards",
            ("cpu 1 again", "ddp from cpu 2"),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_training_goes_on_from_the_others_checkpoints(where, job, reference, runs):
    assert runs.of(where, job) == runs.of(*reference)
