"""Trainings with Hugging Face's trainers, one after the other: PEFT, TRL, generation, sentence-transformers.

Its one argument is JSON: `out`, where each rank writes its answers by name; `folder` for checkpoints; `own`
for their own rules, on the CPU; `jobs`, the names of functions here; `plain` for data and models that need
neither cumsum nor fused attention; `values` for the numbers themselves in place of their digests; `errors` to
answer with what is raised. Models are made on the spot.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from arguments import ours, theirs
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from trainer_gpt import WORDS, model, sentences, tokenizer
from transformers import MptConfig, MptForCausalLM, T5Config, T5ForConditionalGeneration, Trainer

import accel_core

RANKS = int(os.environ.get("WORLD_SIZE", "1"))
STEPS = 4
VALUES = False
LORA = {"r": 4, "lora_alpha": 8, "target_modules": ["c_attn"], "fan_in_fan_out": True, "lora_dropout": 0.0}


class Job:
    """A training's surroundings: by whose rules, where its checkpoints go, and whether it is a plain one."""

    def __init__(self, own: bool, folder: str, plain: bool) -> None:
        self.own, self.folder, self.plain = own, folder, plain

    def writer(self) -> Any:
        """A model that generates; a plain one takes no positions, which Transformers counts with cumsum."""
        return alibi() if self.plain else model()

    def tokens(self) -> Dataset:
        """The sentences as numbers; without a mask Transformers looks for packed ones, with cumsum."""
        ids = [tokenizer()(text)["input_ids"] for text in sentences()]
        masks = [{"attention_mask": [1] * len(row)} if self.plain else {} for row in ids]
        return Dataset.from_list(
            [{"input_ids": row, "labels": row, **mask} for row, mask in zip(ids, masks, strict=True)]
        )

    def arguments(self, kind: str, **more: Any) -> Any:
        """Arguments of that kind, ours or theirs; the batch of 8 is shared among the ranks."""
        options = {
            "output_dir": self.folder,
            "max_steps": STEPS,
            "per_device_train_batch_size": 8 // RANKS,
            "per_device_eval_batch_size": 8 // RANKS,
            "learning_rate": 1e-2,
            "optim": "adamw_torch",
            "save_steps": STEPS // 2,
            "logging_steps": 1,
            "report_to": "none",
            "disable_tqdm": True,
            "use_cpu": self.own,
            **more,
        }
        return (theirs if self.own else ours)(kind)(**options)


def lora() -> Any:
    """The GPT-2 with adapters."""
    torch.manual_seed(2)
    return get_peft_model(model(), LoraConfig(task_type="CAUSAL_LM", **LORA))


def alibi() -> MptForCausalLM:
    """A network of the GPT-2's size whose attention has biases in the place of positions."""
    torch.manual_seed(0)
    size = {"d_model": 32, "n_heads": 2, "n_layers": 2, "expansion_ratio": 4, "max_seq_len": 32}
    special = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    return MptForCausalLM(MptConfig(**size, **special, vocab_size=64))


def peft(job: Job) -> dict[str, Any]:
    """Trainer with LoRA, gradient checkpointing, evaluation, the best model at the end, and resume."""

    def trainer() -> Trainer:
        return Trainer(
            model=lora(),
            args=job.arguments(
                "TrainingArguments",
                activation_checkpointing=True,
                activation_checkpointing_kwargs={"use_reentrant": False},
                eval_strategy="steps",
                eval_steps=2,
                load_best_model_at_end=True,
            ),
            train_dataset=job.tokens(),
            eval_dataset=job.tokens().select(range(16)),
        )

    return trained(trainer, resume=f"{job.folder}/checkpoint-{STEPS // 2}")


def bf16(job: Job) -> dict[str, Any]:
    """The Trainer in bfloat16, evaluating in it too."""

    def trainer() -> Trainer:
        args = job.arguments("TrainingArguments", bf16=True, bf16_full_eval=True, eval_strategy="epoch")
        return Trainer(model=model(), args=args, train_dataset=job.tokens(), eval_dataset=job.tokens())

    return trained(trainer)


def sft(job: Job) -> dict[str, Any]:
    """TRL's SFT with LoRA."""
    from trl import SFTTrainer

    def trainer() -> Trainer:
        return SFTTrainer(
            model=model(),
            args=job.arguments("SFTConfig", max_length=16, bf16=False),
            train_dataset=Dataset.from_list([{"text": text} for text in sentences()]),
            processing_class=tokenizer(),
            peft_config=LoraConfig(task_type="CAUSAL_LM", **LORA),
        )

    return trained(trainer)


def dpo(job: Job) -> dict[str, Any]:
    """TRL's DPO, with a model of reference."""
    from trl import DPOTrainer

    pairs = [
        {
            "prompt": " ".join(words[:4]),
            "chosen": " " + " ".join(words[4:8]),
            "rejected": " " + " ".join(words[8:12]),
        }
        for words in (text.split() for text in sentences())
    ]

    def trainer() -> Trainer:
        return DPOTrainer(
            model=model(),
            ref_model=model(),
            args=job.arguments("DPOConfig", max_length=16, bf16=False, gradient_checkpointing=False),
            train_dataset=Dataset.from_list(pairs),
            processing_class=tokenizer(),
        )

    return trained(trainer)


def grpo(job: Job) -> dict[str, Any]:
    """TRL's GRPO: it generates, is rewarded, and learns."""
    from trl import GRPOTrainer

    def reward(completions: list[str], **_: Any) -> list[float]:
        return [float(sum(word in WORDS[:30] for word in text.split())) for text in completions]

    def trainer() -> Trainer:
        return GRPOTrainer(
            model=job.writer(),
            reward_funcs=reward,
            args=job.arguments(
                "GRPOConfig",
                num_generations=4,
                max_completion_length=8,
                bf16=False,
                gradient_checkpointing=False,
            ),
            train_dataset=Dataset.from_list([{"prompt": " ".join(text.split()[:4])} for text in sentences()]),
            processing_class=tokenizer(),
        )

    return trained(trainer)


def seq2seq(job: Job) -> dict[str, Any]:
    """A T5 that generates while it is evaluated, and predicts."""
    attention = {"attn_implementation": "eager"} if job.plain else {}
    from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer

    names = tokenizer()

    def t5() -> T5ForConditionalGeneration:
        torch.manual_seed(0)
        sizes = {"d_model": 32, "d_ff": 32, "d_kv": 16, "num_layers": 1, "num_heads": 2, "vocab_size": 64}
        special = {"pad_token_id": 2, "eos_token_id": 1, "decoder_start_token_id": 2}
        return T5ForConditionalGeneration(T5Config(**sizes, **special, **attention, dropout_rate=0.0))

    rows = [{"input_ids": names(t)["input_ids"], "labels": names(t)["input_ids"][:8]} for t in sentences()]
    data = Dataset.from_list(rows)

    def metrics(seen: Any) -> dict[str, float]:
        return {"sum": float(seen.predictions.clip(0).sum()), "rows": float(len(seen.predictions))}

    def trainer() -> Trainer:
        network = t5()
        return Seq2SeqTrainer(
            model=network,
            args=job.arguments(
                "Seq2SeqTrainingArguments",
                predict_with_generate=True,
                generation_max_length=8,
                eval_strategy="steps",
                eval_steps=2,
            ),
            train_dataset=data,
            eval_dataset=data.select(range(16)),
            data_collator=DataCollatorForSeq2Seq(names, model=network),
            compute_metrics=metrics,
        )

    made: list[Trainer] = []

    def kept() -> Trainer:
        made.append(trainer())
        return made[-1]

    answer = trained(kept)
    predicted = made[0].predict(data.select(range(8)))
    return {**answer, "predicted": predicted.predictions.tolist()}


def sentence(job: Job) -> dict[str, Any]:
    """sentence-transformers' trainer on a BERT of one layer, and its embeddings."""
    from safetensors.torch import save_file
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel

    made = Path(job.folder, f"bert{os.environ.get('RANK', '0')}")  # each rank writes and reads its own
    if not (made / "config.json").is_file():
        torch.manual_seed(0)
        sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
        none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        bert = BertModel(BertConfig(vocab_size=64, **sizes, **none))
        bert.config.save_pretrained(made)  # the model's own method writes in the first rank alone
        save_file(bert.state_dict(), made / "model.safetensors", metadata={"format": "pt"})
        tokenizer().save_pretrained(made)
    words = [text.split() for text in sentences()]
    pairs = [{"anchor": " ".join(row[:8]), "positive": " ".join(row[8:])} for row in words]
    networks = []

    def trainer() -> Trainer:
        body = Transformer(str(made), model_kwargs={"attn_implementation": "eager"})
        device = "cpu" if job.own else str(accel_core.get_accelerator().device())
        network = SentenceTransformer(modules=[body, Pooling(32)], device=device)
        networks.append(network)
        return SentenceTransformerTrainer(
            model=network,
            args=job.arguments("SentenceTransformerTrainingArguments"),
            train_dataset=Dataset.from_list(pairs),
            loss=MultipleNegativesRankingLoss(network),
        )

    answer = trained(trainer)
    return {**answer, "embedded": digest([networks[0].encode(sentences()[:4], convert_to_tensor=True)])}


def inference(job: Job) -> dict[str, Any]:
    """`pipeline`, and a model whose map of devices is one device, or two halves."""
    from accelerate import dispatch_model
    from transformers import AutoModelForCausalLM, pipeline

    device = torch.device("cpu") if job.own else torch.device(accel_core.get_accelerator().device(0))
    network = job.writer()
    write = pipeline("text-generation", model=network, tokenizer=tokenizer(), device=device)
    text = write(sentences()[0], max_new_tokens=8, do_sample=False)[0]["generated_text"]
    model().save_pretrained(job.folder)
    batch = torch.tensor([tokenizer()(sentences()[0])["input_ids"]])
    masks = {"attention_mask": torch.ones_like(batch, device=device)} if job.plain else {}
    whole = AutoModelForCausalLM.from_pretrained(
        job.folder, device_map={"": device}, attn_implementation="eager"
    )
    other = device if job.own or job.plain else torch.device(device.type, 1)
    halves = dict.fromkeys(("transformer.wte", "transformer.wpe", "transformer.h.0", "lm_head"), device)
    halves |= dict.fromkeys(("transformer.h.1", "transformer.ln_f"), other)
    split = dispatch_model(model(), device_map=halves, main_device=device, force_hooks=True)
    return {
        "device": str(write.device),
        "data": str(next(whole.parameters()).device),
        "text": text,
        "logits": digest([whole(batch.to(device), **masks).logits]),
        "split": digest([split(batch, **masks).logits]),
        "places": sorted({str(parameter.device) for parameter in split.parameters()}),
    }


def trained(make: Callable[[], Trainer], resume: str | None = None) -> dict[str, Any]:
    """All steps, and with `resume` those after that checkpoint once more."""
    trainer = make()
    trainer.train()
    history = trainer.state.log_history
    unlike = ("runtime", "per_second", "step_time", "epoch")
    answer = {
        "device": str(trainer.args.device),
        "weights": str(next(trainer.model.parameters()).device),
        "losses": [line["loss"] for line in history if "loss" in line],
        "metrics": [
            {k: v for k, v in line.items() if not any(word in k for word in unlike)} for line in history
        ],
        "parameters": digest(trainer.model.state_dict().values()),
    }
    if resume is not None:
        again = make()
        again.train(resume_from_checkpoint=resume)
        answer["resumed"] = digest(again.model.state_dict().values())
    return answer


def digest(tensors: Any) -> Any:
    """The values, to the last bit; or the numbers, where another device may round in another order."""
    arrays = [tensor.detach().cpu().float().numpy() for tensor in tensors]
    if VALUES:
        return [number for array in arrays for number in array.ravel().tolist()]
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def answered(job: Callable[[Job], dict[str, Any]], surroundings: Job) -> dict[str, Any]:
    """Answer as the training does, or with its error and the functions that it went through, last first."""
    try:
        return job(surroundings)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        places = [f"{Path(frame.filename).name}:{frame.name}" for frame in reversed(frames)]
        return {"error": f"{type(error).__name__}: {error}", "places": places}


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    VALUES = told.get("values", False)
    answers = {}
    for name in told["jobs"]:
        job = Job(told.get("own", False), f"{told['folder']}/{name}", told.get("plain", False))
        answers[name] = answered(globals()[name], job) if told.get("errors") else globals()[name](job)
    (Path(told["out"]) / f"{os.environ.get('RANK', '0')}.json").write_text(json.dumps(answers))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    # gloo's threads drop the last tensors with Python's lock; while Python ends this aborts (pytorch#190489).
    time.sleep(0.2)
