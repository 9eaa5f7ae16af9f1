"""Count accuracy and confusion on the device, beside a step of training."""

import torch
from given import device, report, step
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassConfusionMatrix

images, labels = torch.randn(64, 8), torch.randint(0, 3, (64,))
model = torch.nn.Linear(8, 3).to(device())
metrics = MetricCollection([MulticlassAccuracy(3), MulticlassConfusionMatrix(3)]).to(
    device()
)

logits = model(images.to(device()))
metrics.update(logits, labels.to(device()))
found = metrics.compute()
accuracy, confusion = found["MulticlassAccuracy"], found["MulticlassConfusionMatrix"]
loss = step(model, torch.nn.functional.cross_entropy(logits, labels.to(device())))
report(torch.cat([accuracy.view(1), confusion.flatten().float()]), loss, model)
