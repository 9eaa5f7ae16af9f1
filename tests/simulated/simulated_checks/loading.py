"""A DataLoader with workers and page-locked batches, after the device has started."""

from __future__ import annotations

import importlib

import torch
from torch.utils.data import DataLoader, TensorDataset

from accel_simulated import VENDORS


def with_workers(vendor: str) -> dict[str, bool]:
    """Two epochs, of workers that are forked, and a third of new ones."""
    importlib.import_module(VENDORS[vendor].package)
    whole = torch.arange(24.0, device=vendor).view(12, 2)
    data = TensorDataset(whole.cpu())
    loader = DataLoader(data, batch_size=4, num_workers=2, pin_memory=True, persistent_workers=True)
    loaders = [loader, loader, DataLoader(data, batch_size=5, num_workers=1, pin_memory=True)]
    epochs = [[batch for (batch,) in each] for each in loaders]
    moved = [torch.cat([batch.to(vendor, non_blocking=True) for batch in epoch]) for epoch in epochs]
    return {
        "pinned": all(batch.is_pinned() for epoch in epochs for batch in epoch),
        "whole": all(torch.equal(epoch, whole) for epoch in moved),
    }
