"""Train a small convolutional network on scikit-learn's digits, on whatever accelerator this machine has.

The 1,797 images (8 x 8 pixels, 16 grey levels) ship with scikit-learn. Nothing here names a device: the
accelerator says where tensors live, which precision it is good at and how to wait for it.

    python examples/train_digits.py
    python examples/train_digits.py --stop-after 6 --checkpoint half.pt      # half way, then stop
    python examples/train_digits.py --resume half.pt                         # goes on, bit for bit
    DS_ACCELERATOR=cpu python examples/train_digits.py                       # pin a backend
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

import accel_core

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
TEST_IMAGES = 360


class DigitsNet(nn.Module):
    """Two convolutions, one pooling, two linear layers: 54,410 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(512, 84),
            nn.ReLU(),
            nn.Dropout(0.25),
            nn.Linear(84, 10),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images (N, 1, 8, 8) to scores (N, 10)."""
        return self.layers(images)


@dataclass(frozen=True)
class Report:
    """What a run gave; `--json` prints it."""

    backend: str
    device: str
    precision: str
    epochs: int
    test_accuracy: float
    images_per_second: float
    #: `None` on a device that does not count.
    peak_memory_bytes: int | None
    parameters_sha256: str


class Trainer:
    """The model, the optimiser and everything that a checkpoint must hold."""

    def __init__(self, acc: accel_core.Accelerator, precision: torch.dtype, seed: int) -> None:
        self.acc = acc
        self.precision = precision
        torch.manual_seed(seed)
        acc.manual_seed_all(seed)
        images, labels = _digits(seed)
        self.train = (acc.pin_memory(images[TEST_IMAGES:]), acc.pin_memory(labels[TEST_IMAGES:]))
        self.test = (images[:TEST_IMAGES], labels[:TEST_IMAGES])
        self.model = DigitsNet().to(acc.device())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3, weight_decay=1e-2)
        self.scaler = acc.grad_scaler(precision)  # only fp16 is narrow enough for gradients to vanish
        self.epoch = 0

    def run_epoch(self, batch_size: int) -> Iterator[tuple[int, torch.Tensor]]:
        """One pass over the shuffled training images; yields each batch's size and loss, on the device."""
        self.model.train()
        order = torch.randperm(len(self.train[1]))
        for images, labels in self._batches(order.split(batch_size)):
            with self.acc.autocast(self.precision, enabled=self.precision is not torch.float32):
                loss = functional.cross_entropy(self.model(images), labels)
            self.optimizer.zero_grad()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            yield len(labels), loss.detach()
        self.epoch += 1

    def _batches(self, indices: tuple[torch.Tensor, ...]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Batches on the device; the next one is copied on a stream of its own while this one is computed."""
        acc = self.acc
        copying = acc.Stream()
        ready: list[tuple[torch.Tensor, torch.Tensor]] = []

        def fetch(index: torch.Tensor) -> None:
            # Gathering makes a new, pageable tensor: it is pinned again so that the copy can overlap.
            hosts = [acc.pin_memory(tensor[index]) for tensor in self.train]
            with acc.stream(copying):
                images, labels = (host.to(acc.device(), non_blocking=True) for host in hosts)
            ready.append((images, labels))

        fetch(indices[0])
        for following in (*indices[1:], None):
            acc.current_stream().wait_stream(copying)
            batch = ready.pop()
            if not acc.is_synchronized_device():
                for tensor in batch:  # made on one stream and used on another: the allocator must know
                    tensor.record_stream(acc.current_stream())
            if following is not None:
                fetch(following)
            yield batch

    @torch.no_grad()
    def accuracy(self) -> float:
        """The share of test images that are recognised, 0 to 1."""
        self.model.eval()
        images, labels = (tensor.to(self.acc.device()) for tensor in self.test)
        return (self.model(images).argmax(1) == labels).float().mean().item()

    def save(self, path: Path) -> None:
        """Write a checkpoint: model, optimiser, scaler, and the random streams of host and device."""
        self.acc.synchronize()
        unfinished = path.with_name(f"{path.name}.unfinished")  # a run that is killed here leaves the old one
        torch.save(
            {
                "accelerator": self.acc.name,
                "epoch": self.epoch,
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scaler": self.scaler.state_dict(),
                "host_rng": torch.get_rng_state(),
                "device_rng": self.acc.get_rng_state(),
            },
            unfinished,
        )
        unfinished.replace(path)

    def load(self, path: Path) -> str:
        """Go on from a checkpoint, on this accelerator, whatever it was written on; gives that one's name.

        Random numbers go on where they were on the same kind of device. Another's generator has a state of
        another size, and is seeded anew.
        """
        try:
            saved = torch.load(path, map_location="cpu", weights_only=True)
        except OSError:
            raise
        except Exception as error:  # whatever the bytes lead torch's reader to: struct.error, IndexError, …
            raise SystemExit(f"--resume {path}: this is no checkpoint of this program ({error})") from None
        self.epoch = saved["epoch"]
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.scaler.load_state_dict(saved["scaler"])
        torch.set_rng_state(saved["host_rng"])
        if saved["accelerator"] == self.acc.name:
            self.acc.set_rng_state(saved["device_rng"])
        return saved["accelerator"]

    def digest(self) -> str:
        """SHA-256 over all parameters: two runs are bit-equal when their digests are."""
        sha = hashlib.sha256()
        for parameter in self.model.state_dict().values():
            sha.update(parameter.detach().cpu().numpy().tobytes())
        return sha.hexdigest()


def _digits(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (1797, 1, 8, 8) from 0 to 1 and labels (1797,), shuffled the same way for the same seed."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    pixels = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    return pixels[order], torch.tensor(labels)[order]


def choose_precision(acc: accel_core.Accelerator, wanted: str) -> torch.dtype:
    """The precision that was asked for, or the best one that the accelerator has natively."""
    if wanted == "auto":
        return acc.training_dtype()
    dtype = PRECISIONS[wanted]
    if dtype not in acc.supported_dtypes():
        supported = ", ".join(name for name, value in PRECISIONS.items() if value in acc.supported_dtypes())
        raise SystemExit(f"--precision {wanted}: {acc.name} supports {supported}")
    return dtype


def train(trainer: Trainer, epochs: int, batch_size: int, console: Console) -> float:
    """Train up to `epochs` with a progress bar; returns images a second, timed by the device itself."""
    acc = trainer.acc
    start, end = acc.Event(enable_timing=True), acc.Event(enable_timing=True)
    columns = (
        TextColumn("epoch {task.fields[epoch]:>2}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
        TimeRemainingColumn(),
    )
    seen = 0
    acc.synchronize()
    start.record()
    with Progress(*columns, console=console) as progress:
        total = (epochs - trainer.epoch) * len(trainer.train[1])
        task = progress.add_task("training", total=total, epoch=trainer.epoch, loss=0.0)
        while trainer.epoch < epochs:
            last = torch.zeros(())
            for count, loss in trainer.run_epoch(batch_size):
                seen += count
                last = loss
                progress.advance(task, count)
            # Reading the loss waits for the device: once an epoch, not once a batch.
            progress.update(task, epoch=trainer.epoch, loss=last.item())
    end.record()
    end.synchronize()
    return seen / max(start.elapsed_time(end) / 1e3, 1e-9) if seen else 0.0


def peak_memory(acc: accel_core.Accelerator) -> int | None:
    """The most bytes that tensors held, or `None` where the vendor has no such count."""
    try:
        return acc.max_memory_allocated()
    except accel_core.UnsupportedError:
        return None


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--epochs", type=int, default=12, help="epochs in all, a resumed run's earlier ones included"
    )
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", choices=["auto", *PRECISIONS], default="auto")
    parser.add_argument("--checkpoint", type=Path, help="write a checkpoint here at the end")
    parser.add_argument("--stop-after", type=int, metavar="EPOCH", help="stop when this epoch is done")
    parser.add_argument("--resume", type=Path, help="go on from this checkpoint")
    parser.add_argument(
        "--json", action="store_true", help="print the result as JSON, and nothing else, on stdout"
    )
    chosen = parser.parse_args(arguments)
    for name in ("epochs", "batch_size", "stop_after"):
        value = getattr(chosen, name)
        if value is not None and value < 1:
            parser.error(f"--{name.replace('_', '-')} must be 1 or more, {value} was given")
    if chosen.resume and not chosen.resume.is_file():
        parser.error(f"--resume {chosen.resume}: there is no such file")
    if chosen.checkpoint and not chosen.checkpoint.absolute().parent.is_dir():
        parser.error(f"--checkpoint {chosen.checkpoint}: there is no folder {chosen.checkpoint.parent}")
    return chosen


def main() -> None:
    arguments = parse_arguments()
    console = Console(stderr=arguments.json)
    acc = accel_core.get_accelerator()
    precision = choose_precision(acc, arguments.precision)
    name, devices = acc.device_properties().name, acc.device_count()
    of_devices = f"{devices} device{'' if devices == 1 else 's'}"
    console.print(f"[bold]{acc.name}[/] ({name}), {of_devices}, computing in {precision}")

    trainer = Trainer(acc, precision, arguments.seed)
    if arguments.resume:
        written_on = trainer.load(arguments.resume)
        other = f", which was written on {written_on}" if written_on != acc.name else ""
        console.print(f"resumed after epoch {trainer.epoch} from {arguments.resume}{other}")
    if peak_memory(acc) is not None:
        acc.reset_peak_memory_stats()
    last = min(arguments.epochs, arguments.stop_after or arguments.epochs)
    speed = train(trainer, last, arguments.batch_size, console)
    if arguments.checkpoint:
        trainer.save(arguments.checkpoint)
        console.print(f"checkpoint written to {arguments.checkpoint}")

    report = Report(
        backend=acc.name,
        device=name,
        precision=str(precision).removeprefix("torch."),
        epochs=trainer.epoch,
        test_accuracy=trainer.accuracy(),
        images_per_second=speed,
        peak_memory_bytes=peak_memory(acc),
        parameters_sha256=trainer.digest(),
    )
    console.print(f"test accuracy  {report.test_accuracy:.2%} of {TEST_IMAGES} images")
    console.print(f"throughput     {report.images_per_second:,.0f} images/s")
    peak = report.peak_memory_bytes
    console.print(
        f"peak memory    {'not counted by this device' if peak is None else f'{peak / 2**20:,.1f} MiB'}"
    )
    console.print(f"parameters     sha256 {report.parameters_sha256[:16]}")
    if arguments.json:
        print(json.dumps(asdict(report)))


if __name__ == "__main__":
    main()
