"""Denoise with a small DDPM, and train it for a step."""

import torch
from diffusers import DDIMScheduler, DDPMPipeline, DDPMScheduler, UNet2DModel
from given import device, report, step

sizes = {
    "sample_size": 8,
    "in_channels": 1,
    "out_channels": 1,
    "block_out_channels": (8, 8),
}
down, up = ("DownBlock2D", "AttnDownBlock2D"), ("AttnUpBlock2D", "UpBlock2D")
blocks = {
    "norm_num_groups": 4,
    "layers_per_block": 1,
    "down_block_types": down,
    "up_block_types": up,
}
model = UNet2DModel(**sizes, **blocks)
pipeline = DDPMPipeline(unet=model, scheduler=DDPMScheduler(num_train_timesteps=20)).to(
    device()
)
pipeline.set_progress_bar_config(disable=True)
# The generator is the host's: each kind of device draws other numbers.
made = pipeline(
    2, torch.Generator("cpu").manual_seed(1), num_inference_steps=4, output_type="np"
).images

clean, noise, times = (
    torch.randn(4, 1, 8, 8),
    torch.randn(4, 1, 8, 8),
    torch.randint(0, 20, (4,)),
)
clean, noise, times = clean.to(device()), noise.to(device()), times.to(device())
noisy = DDIMScheduler(num_train_timesteps=20).add_noise(clean, noise, times)
loss = step(model, torch.nn.functional.mse_loss(model(noisy, times).sample, noise))
report(torch.from_numpy(made).to(device()), loss, model)
