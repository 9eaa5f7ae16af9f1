"""torch.utils.data on the accelerator: workers however they start, pinned batches, late copies."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info

DATA = TensorDataset(torch.arange(40.0).view(20, 2), torch.arange(20))


class Counted(IterableDataset[torch.Tensor]):
    """Each worker's share of twenty numbers."""

    def __iter__(self):
        """Count from the worker's number, by as many as there are."""
        worker = get_worker_info()
        yield from (
            torch.tensor(float(each))
            for each in range(worker.id, 20, worker.num_workers)
        )


def main() -> None:
    """Load with each way of starting workers; nothing may be lost, doubled or unpinned."""
    device = torch.accelerator.current_accelerator()
    torch.zeros(1, device=device)  # the device has started when workers are forked
    for method in ("fork", "forkserver", "spawn"):
        options = {
            "num_workers": 2,
            "pin_memory": True,
            "multiprocessing_context": method,
        }
        loader = DataLoader(
            DATA, batch_size=4, shuffle=True, persistent_workers=True, **options
        )
        for _ in range(2):
            seen = []
            for rows, numbers in loader:
                assert rows.is_pinned(), method
                assert torch.equal(
                    rows.to(device, non_blocking=True)[:, 0].cpu(), numbers * 2.0
                ), method
                seen += numbers.tolist()
            assert sorted(seen) == list(range(20)), (method, seen)
        counted = torch.cat(
            [
                batch.to(device)
                for batch in DataLoader(Counted(), batch_size=3, **options)
            ]
        )
        assert sorted(counted.tolist()) == list(range(20)), method
        print(method, "ok")


if __name__ == "__main__":
    main()
