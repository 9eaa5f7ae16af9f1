"""verl's own program for fine-tuning, on a tiny Qwen2: `verl_sft.py FOLDER STRATEGY [OPTION...]`."""

import json
import os
import runpy
import sys
from pathlib import Path

from accel_tests.children import as_rank
from accel_tests.ports import free_port

#: As Qwen's, without a system prompt.
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }} {{ m['content'] }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant {% endif %}"
)


def make(folder):
    """A model, its tokenizer and 64 additions, made on the spot."""
    import pandas as pd
    from accel_tests.jobs import tiny
    from transformers import Qwen2Config, Qwen2ForCausalLM

    words = [
        "<pad>",
        "<unk>",
        "<|im_start|>",
        "<|im_end|>",
        "user",
        "assistant",
        "plus",
        "is",
    ]
    words += map(str, range(40))
    special = {"pad_token": "<pad>", "eos_token": "<|im_end|>"}
    tokenizer, _ = tiny(Qwen2Config, Qwen2ForCausalLM, words, special, folder / "model")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder / "model")
    pairs = [divmod(row * 37 % 400, 20) for row in range(64)]
    rows = [(("user", f"{a} plus {b}"), ("assistant", f"is {a + b}")) for a, b in pairs]
    messages = [
        [{"role": role, "content": content} for role, content in row] for row in rows
    ]
    pd.DataFrame({"messages": messages}).to_parquet(folder / "train.parquet")


def on_the_cpu():
    """Train there: verl 0.9.1's own process group would name the CPU twice (utils/distributed.py:63)."""
    import torch
    from verl.plugin.platform import PlatformBase, set_platform
    from verl.utils import distributed

    import accel_core
    from accel_train.integrations.verl import Members

    class Module:
        """Members of `torch.<device type>` that verl calls, which `torch.cpu` lacks."""

        def __getattr__(self, name):
            return getattr(
                accel_core.get_accelerator(),
                {"get_device_name": "device_name"}.get(name, name),
            )

    class Platform(Members, PlatformBase):
        device_module = Module()

        def current_device(self):
            return torch.device("cpu")

    set_platform(Platform())
    distributed.initialize_global_process_group = lambda: (
        torch.distributed.init_process_group("gloo")
    )


folder, strategy, *options = Path(sys.argv[1]), *sys.argv[2:]
if strategy == "make":
    make(folder)
    print("{}")
    sys.exit()
metrics = folder / f"metrics-{os.getpid()}.jsonl"
os.environ["VERL_FILE_LOGGER_PATH"] = str(metrics)
for name, alone in as_rank(
    0, 1, free_port()
).items():  # as torchrun sets them for one rank
    os.environ.setdefault(name, alone)
sys.argv[1:] = [
    f"data.train_files={folder}/train.parquet", "data.train_batch_size=8", "data.micro_batch_size_per_gpu=4",
    "data.use_dynamic_bsz=False", "data.max_length=32", "data.num_workers=0", f"model.path={folder}/model",
    "model.use_remove_padding=False", "+model.override_config.attn_implementation=eager",
    f"engine.strategy={strategy}", "engine.use_torch_compile=False",
    "+engine.mixed_precision.param_dtype=fp32", "trainer.logger=[file]", "trainer.total_epochs=2",
    "trainer.resume_mode=disable", f"trainer.default_local_dir={folder}/saved-{os.getpid()}",
    f"hydra.run.dir={folder}/hydra", *options,
]  # fmt: skip
import verl.utils.device  # noqa: E402

platform = verl.utils.device.get_platform()
if os.environ.get("DS_ACCELERATOR") == "cpu":
    on_the_cpu()
runpy.run_module("verl.trainer.sft_trainer", run_name="__main__")
lines = (
    [json.loads(line)["data"] for line in metrics.read_text().splitlines()]
    if metrics.exists()
    else []
)
steps = [[line["train/loss"], line["train/grad_norm"]] for line in lines]
print()
print(
    json.dumps(
        {"platform": [type(platform).__name__, platform.device_name], "trained": steps}
    )
)
