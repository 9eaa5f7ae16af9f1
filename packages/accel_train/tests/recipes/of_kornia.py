"""Augment images on the device, and train a convolution on them."""

import kornia
import torch
from given import device, report, step

images, labels = torch.rand(8, 3, 16, 16), torch.randint(0, 3, (8,))
augment = torch.nn.Sequential(
    kornia.augmentation.RandomHorizontalFlip(p=0.5),
    kornia.augmentation.RandomAffine(degrees=20.0, p=1.0),
    kornia.augmentation.RandomGaussianBlur((3, 3), (0.5, 1.0), p=1.0),
)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(4 * 14 * 14, 3)
)

model = model.to(device())
changed = augment(images.to(device()))
edges = kornia.filters.sobel(changed)
loss = step(model, torch.nn.functional.cross_entropy(model(edges), labels.to(device())))
report(edges[:, :, 5], loss, model)
