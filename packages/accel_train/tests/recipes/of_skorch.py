"""Fit a classifier of skorch for an epoch of one batch."""

import torch
from given import device, report
from skorch import NeuralNetClassifier

images, labels = torch.randn(64, 8).numpy(), torch.randint(0, 3, (64,)).numpy()
net = NeuralNetClassifier(
    torch.nn.Linear,
    module__in_features=8,
    module__out_features=3,
    criterion=torch.nn.CrossEntropyLoss,
    device=device(),
    max_epochs=1,
    batch_size=64,
    lr=0.1,
    train_split=None,
    verbose=0,
)
net.initialize()
predicted = net.forward(images, training=False, device=device())
net.partial_fit(images, labels)
report(predicted, net.history[-1, "train_loss"], net.module_)
