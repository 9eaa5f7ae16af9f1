"""Fit a classifier of skorch for an epoch of one batch."""

import torch
from given import device, report
from skorch import NeuralNetClassifier

images, labels = torch.randn(64, 8).numpy(), torch.randint(0, 3, (64,)).numpy()
sizes = {
    "module__in_features": 8,
    "module__out_features": 3,
    "batch_size": 64,
    "max_epochs": 1,
    "lr": 0.1,
}
how = {
    "criterion": torch.nn.CrossEntropyLoss,
    "device": device(),
    "train_split": None,
    "verbose": 0,
}
net = NeuralNetClassifier(torch.nn.Linear, **sizes, **how)
net.initialize()
predicted = net.forward(images, training=False, device=device())
net.partial_fit(images, labels)
report(predicted, net.history[-1, "train_loss"], net.module_)
