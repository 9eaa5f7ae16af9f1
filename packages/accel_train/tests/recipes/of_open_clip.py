"""Compare images with texts by a small CLIP, and train it for a step."""

import vision  # noqa: F401 - before the library

# isort: split
import json
import tempfile
from pathlib import Path

import open_clip
import torch
from given import device, report, step
from torch.nn.attention import SDPBackend, sdpa_kernel

config = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 64, "patch_size": 16},
    "text_cfg": {
        "context_length": 12,
        "vocab_size": 49408,
        "width": 16,
        "heads": 2,
        "layers": 2,
    },
}
with tempfile.TemporaryDirectory() as home:
    Path(home, "open_clip_config.json").write_text(
        json.dumps({"model_cfg": config, "preprocess_cfg": {}})
    )
    model = open_clip.create_model(
        f"local-dir:{home}", load_weights=False, device=device()
    )

images = torch.randn(3, 3, 32, 32).to(device())
texts = open_clip.SimpleTokenizer(context_length=12)(
    ["a dog", "a cat", "two red birds"]
).to(device())
# TorchTPU's own attention needs Pallas, which XLA's library for the CPU lacks.
with sdpa_kernel(SDPBackend.MATH):
    of_images, of_texts, scale = model(images, texts)
loss = step(model, open_clip.ClipLoss()(of_images, of_texts, scale))
report(torch.cat([of_images, of_texts]), loss, model)
