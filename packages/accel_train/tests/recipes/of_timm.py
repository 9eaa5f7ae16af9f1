"""Classify the images of timm's loader with a small ResNet."""

import vision  # noqa: F401 - before the library

# isort: split
import timm
import torch
from given import device, report, step
from timm.data import create_loader
from torchvision.datasets import FakeData

images = FakeData(size=4, image_size=(3, 32, 32), num_classes=3)
# Without `device` the loader takes CUDA.
loader = create_loader(
    images, (3, 32, 32), 4, num_workers=0, persistent_workers=False, device=device()
)
model = timm.create_model("test_resnet", num_classes=3).to(device())

batch, labels = next(iter(loader))
logits = model(batch)
report(logits, step(model, torch.nn.functional.cross_entropy(logits, labels)), model)
