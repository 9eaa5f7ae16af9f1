"""A denoiser on Accelerate: an average of its parameters (EMA), and checkpoints from which it goes on."""

import copy
import json

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_float32_matmul_precision("high")


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(10, 8)
        self.enter, self.leave = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 1, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, images, times):
        hidden = self.enter(images) + self.time(times)[:, :, None, None]
        return self.leave(nn.functional.silu(self.norm(hidden)))


def main():
    accelerator = Accelerator()
    torch.manual_seed(0)
    images = torch.rand(32, 1, 8, 8)
    loader = DataLoader(
        TensorDataset(images, torch.randn_like(images), torch.randint(0, 10, (32,))), batch_size=4
    )
    model = Denoiser()
    average = copy.deepcopy(model).to(accelerator.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    keep = torch.linspace(0.99, 0.1, 10, device=accelerator.device)
    losses = []
    for epoch in range(3):
        for clean, noise, times in loader:
            kept = keep[times][:, None, None, None]
            noisy = kept.sqrt() * clean + (1 - kept).sqrt() * noise
            loss = nn.functional.mse_loss(model(noisy, times), noise)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                for mean, now in zip(
                    average.parameters(), accelerator.unwrap_model(model).parameters(), strict=True
                ):
                    mean.lerp_(now, 0.1)
            losses.append(accelerator.gather(loss).mean().item())
        if epoch == 0:
            accelerator.save_state("checkpoint")
        if epoch == 1:  # the third epoch does the second's work again
            accelerator.wait_for_everyone()
            accelerator.load_state("checkpoint")
    losses.append(sum(parameter.double().sum().item() for parameter in average.cpu().parameters()))
    if accelerator.is_main_process:
        print(json.dumps({"device": str(accelerator.device), "losses": losses}))
    accelerator.end_training()


if __name__ == "__main__":
    main()
