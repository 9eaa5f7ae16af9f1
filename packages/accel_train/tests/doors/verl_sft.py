"""verl's own program for fine-tuning, on a tiny Qwen2: `verl_sft.py FOLDER STRATEGY [OPTION...]`."""

from __future__ import annotations

import json
import os
import random
import runpy
import sys
from pathlib import Path
from typing import Any

from accel_tests.children import as_rank
from accel_tests.ports import free_port

FOLDER, STRATEGY, *OPTIONS = sys.argv[1:]
SPECIAL = ["<pad>", "<unk>", "<|im_start|>", "<|im_end|>"]
#: As Qwen's, without a system prompt.
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }} {{ m['content'] }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant {% endif %}"
)


def make(folder: Path) -> None:
    """A model, its tokenizer and 64 additions, made on the spot."""
    import pandas as pd
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    words = [*SPECIAL, "user", "assistant", "plus", "is", *map(str, range(40))]
    plain = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    plain.add_special_tokens(SPECIAL)
    named = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "<|im_end|>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, **named)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder / "model")
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        tie_word_embeddings=False, pad_token_id=0, eos_token_id=3,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder / "model")
    pairs = [divmod(random.Random(0).randrange(400) * (row + 1) % 400, 20) for row in range(64)]
    rows: list[dict[str, Any]] = [
        {
            "messages": [
                {"role": "user", "content": f"{a} plus {b}"},
                {"role": "assistant", "content": f"is {a + b}"},
            ]
        }
        for a, b in pairs
    ]
    pd.DataFrame(rows).to_parquet(folder / "train.parquet")


def on_the_cpu() -> None:
    """Train there: verl 0.9.1's own process group would name the CPU twice (utils/distributed.py:63)."""
    import torch
    from verl.plugin.platform import PlatformBase, set_platform
    from verl.utils import distributed

    import accel_core
    from accel_train.doors.verl import Members

    class Module:
        """Members of `torch.<device type>` that verl calls, which `torch.cpu` lacks."""

        def __getattr__(self, name: str) -> Any:
            return getattr(accel_core.get_accelerator(), {"get_device_name": "device_name"}.get(name, name))

    class Platform(Members, PlatformBase):  # type: ignore[misc]
        device_module = Module()

        def current_device(self) -> Any:
            return torch.device("cpu")

    def start() -> None:
        torch.distributed.init_process_group("gloo")

    set_platform(Platform())
    distributed.initialize_global_process_group = start


folder = Path(FOLDER)
if STRATEGY == "make":
    make(folder)
    print("{}")
    sys.exit()
metrics = folder / f"metrics-{os.getpid()}.jsonl"
os.environ["VERL_FILE_LOGGER_PATH"] = str(metrics)
for name, alone in as_rank(0, 1, free_port()).items():  # as torchrun sets them for one rank
    os.environ.setdefault(name, str(alone))
sys.argv[1:] = [
    f"data.train_files={folder}/train.parquet", "data.train_batch_size=8", "data.micro_batch_size_per_gpu=4",
    "data.use_dynamic_bsz=False", "data.max_length=32", "data.num_workers=0", f"model.path={folder}/model",
    "model.use_remove_padding=False", "+model.override_config.attn_implementation=eager",
    f"engine.strategy={STRATEGY}", "engine.use_torch_compile=False",
    "+engine.mixed_precision.param_dtype=fp32", "trainer.logger=[file]", "trainer.total_epochs=2",
    "trainer.resume_mode=disable", f"trainer.default_local_dir={folder}/saved-{os.getpid()}",
    f"hydra.run.dir={folder}/hydra", *OPTIONS,
]  # fmt: skip
import verl.utils.device  # noqa: E402

platform = verl.utils.device.get_platform()
if os.environ.get("DS_ACCELERATOR") == "cpu":
    on_the_cpu()
runpy.run_module("verl.trainer.sft_trainer", run_name="__main__")
lines = [json.loads(line)["data"] for line in metrics.read_text().splitlines()] if metrics.exists() else []
print()
print(
    json.dumps(
        {
            "platform": [type(platform).__name__, platform.device_name],
            "trained": [[line["train/loss"], line["train/grad_norm"]] for line in lines],
        }
    )
)
