"""Trainings with Hugging Face's trainers, one after the other: PEFT, TRL, generation, sentence-transformers.

`jobs.report` tells how it is started: with `folder` for checkpoints; `own` for their own rules, on the CPU;
`jobs`, the names of functions here; `plain` for data and models that need neither cumsum nor fused attention;
`values` for the numbers themselves in place of their digests; `errors` to answer with what is raised. Models
are made on the spot.
"""

import os
import traceback
from pathlib import Path

import torch
from accel_tests import jobs as shared
from arguments import ours, theirs
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    MptConfig,
    MptForCausalLM,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
    Trainer,
)

import accel_core

RANKS = int(os.environ.get("WORLD_SIZE", "1"))
STEPS = 4
VALUES = False
WORDS = [f"w{number}" for number in range(60)]
EAGER = {"attn_implementation": "eager"}
SPECIAL = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}


def model():
    """A GPT-2 of two small layers, with the same weights in every process."""
    torch.manual_seed(0)
    size = {
        "n_layer": 2,
        "n_embd": 32,
        "n_head": 2,
        "n_positions": 32,
        "vocab_size": 64,
    }
    # Without dropout: in several processes each would draw the same mask.
    none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    # Without fused kernels, whose sums are another device's in another order.
    return GPT2LMHeadModel(GPT2Config(**size, **none, **SPECIAL, **EAGER))


def tokenizer():
    """Words as they stand."""
    vocabulary = {
        name: number
        for number, name in enumerate(["<s>", "</s>", "<pad>", "<unk>", *WORDS])
    }
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
    }
    return PreTrainedTokenizerFast(tokenizer_object=words, **special)


def sentences():
    """Texts in which each word tells the next one."""
    return [
        " ".join(WORDS[(start + 7 * place) % 60] for place in range(16))
        for start in range(96)
    ]


class Job:
    """A training's surroundings: by whose rules, where its checkpoints go, and whether it is a plain one."""

    def __init__(self, own, folder, plain):
        self.own, self.folder, self.plain = own, folder, plain

    def writer(self):
        """A model that generates; a plain one takes no positions, which Transformers counts with cumsum."""
        return alibi() if self.plain else model()

    def tokens(self):
        """The sentences as numbers; without a mask Transformers looks for packed ones, with cumsum."""
        ids = [tokenizer()(text)["input_ids"] for text in sentences()]
        masks = [
            {"attention_mask": [1] * len(row)} if self.plain else {} for row in ids
        ]
        rows = [
            {"input_ids": row, "labels": row, **mask}
            for row, mask in zip(ids, masks, strict=True)
        ]
        return Dataset.from_list(rows)

    def arguments(self, kind="TrainingArguments", *, mixin=True, **more):
        """Arguments of that kind, ours or theirs; the batch of 8 is shared among the ranks."""
        sizes = {
            f"per_device_{part}_batch_size": 8 // RANKS for part in ("train", "eval")
        }
        steps = {"max_steps": STEPS, "save_steps": STEPS // 2, "logging_steps": 1}
        quiet = {"report_to": "none", "disable_tqdm": True}
        how = {"learning_rate": 1e-2, "optim": "adamw_torch", "use_cpu": self.own}
        options = {"output_dir": self.folder, **sizes, **steps, **quiet, **how, **more}
        return (ours if mixin and not self.own else theirs)(kind)(**options)


def gpt(job, mixin=True):
    """The Trainer alone, resumed from the middle."""
    args = {"mixin": mixin}
    answer, trainer = fitted(job, Trainer, model, job.tokens(), args, resume=True)
    data = next(iter(trainer.get_train_dataloader()))["input_ids"].device
    ranks = {
        "parallel": trainer.args.parallel_mode.value,
        "backend": trainer.accelerator.state.backend,
    }
    return {**answer, **ranks, "data": str(data)}


def in_order(job):
    """The same in the order that docs/howto/trainers.md gives: `partial_state()`, their own arguments."""
    from accel_train.accelerate import partial_state

    if not job.own:
        partial_state()
    return gpt(job, mixin=False)


def adapters():
    """What PEFT adds to the GPT-2."""
    from peft import LoraConfig

    where = {"target_modules": ["c_attn"], "fan_in_fan_out": True}
    return LoraConfig(
        task_type="CAUSAL_LM", r=4, lora_alpha=8, lora_dropout=0.0, **where
    )


def alibi():
    """A network of the GPT-2's size whose attention has biases in the place of positions."""
    torch.manual_seed(0)
    size = {
        "d_model": 32,
        "n_heads": 2,
        "n_layers": 2,
        "expansion_ratio": 4,
        "max_seq_len": 32,
    }
    return MptForCausalLM(MptConfig(**size, **SPECIAL, vocab_size=64))


def peft(job):
    """Trainer with LoRA, gradient checkpointing, evaluation, the best model at the end, and resume."""
    from peft import get_peft_model

    def adapted():
        network = model()
        torch.manual_seed(2)
        return get_peft_model(network, adapters())

    again = {
        "activation_checkpointing": True,
        "activation_checkpointing_kwargs": {"use_reentrant": False},
    }
    args = {
        **again,
        "eval_strategy": "steps",
        "eval_steps": 2,
        "load_best_model_at_end": True,
    }
    data = job.tokens()
    return fitted(
        job,
        Trainer,
        adapted,
        data,
        args,
        resume=True,
        eval_dataset=data.select(range(16)),
    )[0]


def bf16(job):
    """The Trainer in bfloat16, evaluating in it too."""
    args = {"bf16": True, "bf16_full_eval": True, "eval_strategy": "epoch"}
    return fitted(job, Trainer, model, job.tokens(), args, eval_dataset=job.tokens())[0]


def sft(job):
    """TRL's SFT with LoRA."""
    from trl import SFTTrainer

    data = Dataset.from_list([{"text": text} for text in sentences()])
    args = {"kind": "SFTConfig", "max_length": 16, "bf16": False}
    more = {"processing_class": tokenizer(), "peft_config": adapters()}
    return fitted(job, SFTTrainer, model, data, args, **more)[0]


def dpo(job):
    """TRL's DPO, with a model of reference."""
    from trl import DPOTrainer

    rows = [text.split() for text in sentences()]
    parts = {"prompt": (0, 4), "chosen": (4, 8), "rejected": (8, 12)}
    data = [
        {part: " " * bool(a) + " ".join(row[a:b]) for part, (a, b) in parts.items()}
        for row in rows
    ]
    args = {
        "kind": "DPOConfig",
        "max_length": 16,
        "bf16": False,
        "gradient_checkpointing": False,
    }
    more = {"ref_model": model(), "processing_class": tokenizer()}
    return fitted(job, DPOTrainer, model, Dataset.from_list(data), args, **more)[0]


def grpo(job):
    """TRL's GRPO: it generates, is rewarded, and learns."""
    from trl import GRPOTrainer

    def reward(completions, **_):
        return [
            float(sum(word in WORDS[:30] for word in text.split()))
            for text in completions
        ]

    data = Dataset.from_list(
        [{"prompt": " ".join(text.split()[:4])} for text in sentences()]
    )
    args = {"kind": "GRPOConfig", "num_generations": 4, "max_completion_length": 8}
    args |= {"bf16": False, "gradient_checkpointing": False}
    more = {"reward_funcs": reward, "processing_class": tokenizer()}
    return fitted(job, GRPOTrainer, job.writer, data, args, **more)[0]


def seq2seq(job):
    """A T5 that generates while it is evaluated, and predicts."""
    attention = EAGER if job.plain else {}
    from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer

    names = tokenizer()

    def t5():
        torch.manual_seed(0)
        sizes = {
            "d_model": 32,
            "d_ff": 32,
            "d_kv": 16,
            "num_layers": 1,
            "num_heads": 2,
            "vocab_size": 64,
        }
        special = {"pad_token_id": 2, "eos_token_id": 1, "decoder_start_token_id": 2}
        return T5ForConditionalGeneration(
            T5Config(**sizes, **special, **attention, dropout_rate=0.0)
        )

    rows = [
        {"input_ids": names(t)["input_ids"], "labels": names(t)["input_ids"][:8]}
        for t in sentences()
    ]
    data = Dataset.from_list(rows)

    def metrics(seen):
        return {
            "sum": float(seen.predictions.clip(0).sum()),
            "rows": float(len(seen.predictions)),
        }

    args = {
        "kind": "Seq2SeqTrainingArguments",
        "predict_with_generate": True,
        "generation_max_length": 8,
    }
    args |= {"eval_strategy": "steps", "eval_steps": 2}
    more = {"eval_dataset": data.select(range(16)), "compute_metrics": metrics}
    more["data_collator"] = DataCollatorForSeq2Seq(
        names, model=t5()
    )  # asks it for its way to shift labels
    answer, trainer = fitted(job, Seq2SeqTrainer, t5, data, args, **more)
    predicted = trainer.predict(data.select(range(8)))
    return {**answer, "predicted": predicted.predictions.tolist()}


def sentence(job):
    """sentence-transformers' trainer on a BERT of one layer, and its embeddings."""
    from safetensors.torch import save_file
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers.sentence_transformer.losses import (
        MultipleNegativesRankingLoss,
    )
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel

    made = Path(
        job.folder, f"bert{os.environ.get('RANK', '0')}"
    )  # each rank writes and reads its own
    if not (made / "config.json").is_file():
        torch.manual_seed(0)
        sizes = {
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 32,
        }
        none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        bert = BertModel(BertConfig(vocab_size=64, **sizes, **none))
        bert.config.save_pretrained(
            made
        )  # the model's own method writes in the first rank alone
        save_file(
            bert.state_dict(), made / "model.safetensors", metadata={"format": "pt"}
        )
        tokenizer().save_pretrained(made)
    words = [text.split() for text in sentences()]
    pairs = [
        {"anchor": " ".join(row[:8]), "positive": " ".join(row[8:])} for row in words
    ]
    body = Transformer(str(made), model_kwargs=EAGER)
    device = "cpu" if job.own else str(accel_core.get_accelerator().device())
    network = SentenceTransformer(modules=[body, Pooling(32)], device=device)
    args, loss = (
        {"kind": "SentenceTransformerTrainingArguments"},
        MultipleNegativesRankingLoss(network),
    )
    data = Dataset.from_list(pairs)
    answer, _ = fitted(
        job, SentenceTransformerTrainer, lambda: network, data, args, loss=loss
    )
    return {
        **answer,
        "embedded": digest([network.encode(sentences()[:4], convert_to_tensor=True)]),
    }


def inference(job):
    """`pipeline`, and a model whose map of devices is one device, or two halves."""
    from accelerate import dispatch_model
    from transformers import AutoModelForCausalLM, pipeline

    device = (
        torch.device("cpu")
        if job.own
        else torch.device(accel_core.get_accelerator().device(0))
    )
    network = job.writer()
    write = pipeline(
        "text-generation", model=network, tokenizer=tokenizer(), device=device
    )
    text = write(sentences()[0], max_new_tokens=8, do_sample=False)[0]["generated_text"]
    model().save_pretrained(job.folder)
    batch = torch.tensor([tokenizer()(sentences()[0])["input_ids"]])
    masks = (
        {"attention_mask": torch.ones_like(batch, device=device)} if job.plain else {}
    )
    whole = AutoModelForCausalLM.from_pretrained(
        job.folder, device_map={"": device}, **EAGER
    )
    other = device if job.own or job.plain else torch.device(device.type, 1)
    halves = dict.fromkeys(
        ("transformer.wte", "transformer.wpe", "transformer.h.0", "lm_head"), device
    )
    halves |= dict.fromkeys(("transformer.h.1", "transformer.ln_f"), other)
    split = dispatch_model(
        model(), device_map=halves, main_device=device, force_hooks=True
    )
    return {
        "device": str(write.device),
        "data": str(next(whole.parameters()).device),
        "text": text,
        "logits": digest([whole(batch.to(device), **masks).logits]),
        "split": digest([split(batch, **masks).logits]),
        "places": sorted({str(parameter.device) for parameter in split.parameters()}),
    }


def fitted(job, kind, network, data, arguments, *, resume=False, **more):
    """All steps, and with `resume` those after the middle once more; the answer, and the trainer."""

    def made():
        return kind(
            model=network(), args=job.arguments(**arguments), train_dataset=data, **more
        )

    trainer = made()
    trainer.train()
    history = trainer.state.log_history
    unlike = ("runtime", "per_second", "step_time", "epoch")
    answer = {
        "device": str(trainer.args.device),
        "weights": str(next(trainer.model.parameters()).device),
        "losses": [line["loss"] for line in history if "loss" in line],
        "metrics": [
            {k: v for k, v in line.items() if not any(word in k for word in unlike)}
            for line in history
        ],
        "parameters": digest(trainer.model.state_dict().values()),
    }
    if resume:
        again = made()
        again.train(resume_from_checkpoint=f"{job.folder}/checkpoint-{STEPS // 2}")
        answer["resumed"] = digest(again.model.state_dict().values())
    return answer, trainer


def digest(tensors):
    """The values, bit for bit; or the numbers, where another device may round in another order."""
    floats = [tensor.detach().cpu().float() for tensor in tensors]
    if VALUES:
        return [number for tensor in floats for number in tensor.flatten().tolist()]
    return shared.digest(floats)


def answered(job, surroundings):
    """Answer as the training does, or with its error and the functions that it went through, last first."""
    try:
        return job(surroundings)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        places = [
            f"{Path(frame.filename).name}:{frame.name}" for frame in reversed(frames)
        ]
        return {"error": f"{type(error).__name__}: {error}", "places": places}


def train(folder, jobs, own=False, plain=False, values=False, errors=False):
    """What each job answers."""
    global VALUES
    VALUES, answers = values, {}
    for name in jobs:
        job = Job(own, f"{folder}/{name}", plain)
        answers[name] = (
            answered(globals()[name], job) if errors else globals()[name](job)
        )
    return answers


if __name__ == "__main__":
    shared.report(train)
