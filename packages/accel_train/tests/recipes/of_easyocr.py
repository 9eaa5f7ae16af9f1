"""Read a line of text with an EasyOCR reader, find text with CRAFT, and train the recognizer for a step."""

import vision  # noqa: F401 - before the library

# isort: split
import tempfile
from pathlib import Path

import easyocr
import numpy as np
import torch
import yaml
from easyocr.craft import CRAFT
from easyocr.model.vgg_model import Model
from given import device, report, step

CHARACTERS = "0123456789 "
SIZES = {"input_channel": 1, "output_channel": 32, "hidden_size": 16}

# A Reader downloads its weights, but for a network of the user.
with tempfile.TemporaryDirectory() as home:
    weights = Model(num_class=1 + len(CHARACTERS), **SIZES).state_dict()
    weights = {f"module.{name}": value for name, value in weights.items()}
    torch.save(weights, Path(home, "small.pth"))
    Path(home, "small.py").write_text("from easyocr.model.vgg_model import Model\n")
    config = {
        "imgH": 32,
        "lang_list": ["en"],
        "character_list": CHARACTERS,
        "network_params": SIZES,
    }
    Path(home, "small.yaml").write_text(yaml.safe_dump(config))
    folders = {"model_storage_directory": home, "user_network_directory": home}
    off = dict.fromkeys(("detector", "quantize", "verbose"), False)
    reader = easyocr.Reader(
        ["en"], gpu=str(device()), recog_network="small", **folders, **off
    )
# DataParallel scatters by CUDA's code.
if isinstance(reader.recognizer, torch.nn.DataParallel):
    reader.recognizer = reader.recognizer.module
page = (np.random.RandomState(0).rand(32, 64) * 255).astype("uint8")
sure = [confidence for _, _, confidence in reader.recognize(page)]

detector = CRAFT().to(device()).eval()
with torch.no_grad():
    regions, _ = detector(torch.randn(1, 3, 32, 32).to(device()))

model = reader.recognizer.train()
text, lengths = reader.converter.encode(["12 34"], 12)
logits = (
    model(torch.randn(1, 1, 32, 64).to(device()), None).log_softmax(2).permute(1, 0, 2)
)
sizes = torch.tensor([logits.size(0)])
loss = step(
    model, torch.nn.functional.ctc_loss(logits, text.to(device()), sizes, lengths)
)
report(
    torch.cat([regions.flatten()[:100], torch.tensor(sure).to(device())]), loss, model
)
