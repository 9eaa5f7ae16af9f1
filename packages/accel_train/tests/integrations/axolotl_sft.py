"""axolotl's own training of a tiny Llama, from a configuration: `axolotl_sft.py FOLDER [JSON]`."""

import json
import os
import sys
from pathlib import Path

os.environ |= {"AXOLOTL_DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}


def make(folder):
    """A model, its tokenizer and 64 additions in tokens, made on the spot."""
    from accel_tests.jobs import tiny
    from transformers import LlamaConfig, LlamaForCausalLM

    words = ["<pad>", "<unk>", "<s>", "</s>", "plus", "is", *map(str, range(40))]
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    tokenizer, plain = tiny(
        LlamaConfig, LlamaForCausalLM, words, special, folder / "model"
    )
    tokenizer.save_pretrained(folder / "model")
    pairs = [divmod(row * 37 % 400, 20) for row in range(64)]
    rows = [plain.encode(f"<s> {a} plus {b} is {a + b} </s>").ids for a, b in pairs]
    lines = [
        {"input_ids": row, "attention_mask": [1] * len(row), "labels": row}
        for row in rows
    ]
    (folder / "data.jsonl").write_text(
        "".join(f"{json.dumps(line)}\n" for line in lines)
    )


def configuration(folder):
    """As in axolotl's YAML files; each process writes its own output."""
    return {
        "base_model": f"{folder}/model", "output_dir": f"{folder}/out-{os.getpid()}",
        "datasets": [{"path": f"{folder}/data.jsonl", "ds_type": "json", "type": "completion"}],
        "dataset_prepared_path": f"{folder}/prepared-{os.getpid()}", "skip_prepare_dataset": True,
        "sequence_len": 32, "micro_batch_size": 4, "gradient_accumulation_steps": 1, "num_epochs": 2,
        "max_steps": 16, "learning_rate": 0.01, "optimizer": "adamw_torch", "lr_scheduler": "constant",
        "attn_implementation": "eager", "val_set_size": 0, "logging_steps": 1, "save_strategy": "no",
        "seed": 1, "tf32": False,
    }  # fmt: skip


folder = Path(sys.argv[1])
if sys.argv[2:] == ["make"]:
    make(folder)
    print("{}")
    sys.exit()

from axolotl.cli.args import TrainerCliArgs  # noqa: E402
from axolotl.cli.config import load_cfg  # noqa: E402
from axolotl.common.datasets import load_datasets  # noqa: E402
from axolotl.train import train  # noqa: E402
from axolotl.utils.dict import DictDefault  # noqa: E402

cfg = load_cfg(DictDefault(configuration(folder) | json.loads(sys.argv[2])))
if (
    cfg.device == "cpu"
):  # its own ranks name a device by number (0.21.0, utils/config/__init__.py:256)
    cfg.device_map = {"": "cpu"}
model, _, trainer = train(
    cfg=cfg, dataset_meta=load_datasets(cfg=cfg, cli_args=TrainerCliArgs())
)
steps = [
    [line["loss"], line["grad_norm"]]
    for line in trainer.state.log_history
    if "loss" in line
]
devices = {str(p.device) for p in model.parameters()} | {
    str(trainer.args.device),
    cfg.device,
}
print()
print(
    json.dumps(
        {"devices": sorted(devices), "dtype": str(cfg.torch_dtype), "trained": steps}
    )
)
