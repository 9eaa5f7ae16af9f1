"""Detect with a small YOLO26, and train it for a step with Ultralytics' trainer."""

import os
from pathlib import Path

import numpy as np
import torch
from given import device, report
from PIL import Image
from ultralytics import YOLO

home = Path(os.environ["YOLO_CONFIG_DIR"])
page = (np.random.RandomState(0).rand(64, 64, 3) * 255).astype("uint8")
yolo = YOLO("yolo26n.yaml")
for parameter in yolo.model.parameters():  # else all boxes are alike
    torch.nn.init.normal_(parameter, std=0.3)
# The CPU would compute in channels_last, and without `nms=False` torchvision's operator is called.
found = yolo.predict(
    page, device=device(), imgsz=64, conf=1e-4, nms=False, channels_last=False
)[0]

import vision  # noqa: E402, F401 - here, as prediction takes torchvision's operator once that is imported


def give(trainer):
    """Set the trainer's device: its argument takes none that it does not know."""
    trainer.device, trainer.accelerator = device(), torch.get_device_module(device())


for name in ("images", "labels", "Ultralytics"):
    (home / name).mkdir(exist_ok=True)
(home / "Ultralytics" / "Arial.ttf").touch()  # else it is downloaded
for number in range(4):
    Image.fromarray(np.roll(page, 16 * number, 0)).save(
        home / "images" / f"{number}.png"
    )
    (home / "labels" / f"{number}.txt").write_text(f"{number % 2} 0.5 0.5 0.4 0.4\n")
(home / "data.yaml").write_text(
    f"path: {home}\ntrain: images\nval: images\nnames: [one, two]\n"
)

yolo = YOLO("yolo26n.yaml")
yolo.add_callback("on_pretrain_routine_start", give)
sizes = {
    "imgsz": 64,
    "batch": 4,
    "nbs": 4,
    "epochs": 1,
    "warmup_epochs": 0,
    "optimizer": "SGD",
    "lr0": 0.1,
}
off = dict.fromkeys(("amp", "nms", "plots"), False)
yolo.train(
    device="cpu", data=str(home / "data.yaml"), project=str(home), **sizes, **off
)
report(found.boxes.data, float(sum(yolo.trainer.tloss.values())), yolo.trainer.model)
