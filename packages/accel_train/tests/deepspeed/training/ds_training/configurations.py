"""What is trained: a table of configurations, each as DeepSpeed's JSON. Needs neither torch nor DeepSpeed."""

from dataclasses import dataclass

#: Steps of the optimizer, sequences in a micro batch, and after how many steps is saved: past the five of the
#: warm-up.
STEPS, BATCH, SAVED_AT = 12, 4, 6


@dataclass(frozen=True)
class Configuration:
    """One training of `STEPS` steps in two ranks."""

    name: str
    zero: int = 0
    bf16: bool = False
    #: Micro batches to a step.
    accumulation: int = 1
    #: `deepspeed.checkpointing`: blocks are computed again in the backward pass.
    checkpointing: bool = False
    #: The optimizer's states are on the CPU, in `DeepSpeedCPUAdam`.
    offload: bool = False
    #: DeepSpeed's `FusedAdam`; otherwise torch's AdamW.
    fused: bool = False
    #: The parameters are partitioned while the model is made: `deepspeed.zero.Init`.
    init: bool = False
    #: Stages of a pipeline.
    pipeline: int = 1
    #: A checkpoint is saved after `SAVED_AT` steps; other processes go on from it.
    saves: bool = False
    #: By day others pass the same lines: what it combines is trained there one by one.
    by_night: bool = False

    def deepspeed(self):
        """The configuration for `deepspeed.initialize`."""
        # Small buckets, so that a small model has several, and parameters of every size are partitioned.
        zero = {"stage": self.zero, "overlap_comm": self.zero in (2, 3)}
        zero |= dict.fromkeys(("reduce_bucket_size", "allgather_bucket_size"), 50_000)
        if self.zero == 3:
            zero |= {
                "stage3_param_persistence_threshold": 0,
                "stage3_prefetch_bucket_size": 20_000,
                "stage3_max_live_parameters": 60_000,
                "stage3_max_reuse_distance": 60_000,
            }
        if self.offload:
            zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
        own = {} if self.offload or self.fused else {"torch_adam": True}
        return {
            "train_micro_batch_size_per_gpu": BATCH,
            "gradient_accumulation_steps": self.accumulation,
            "gradient_clipping": 1.0,
            "zero_optimization": zero,
            "bf16": {"enabled": self.bf16},
            "optimizer": {
                "type": "AdamW",
                "params": {"lr": 3e-3, "weight_decay": 0.01, **own},
            },
            "scheduler": {
                "type": "WarmupLR",
                "params": {"warmup_num_steps": 5, "warmup_max_lr": 3e-3},
            },
            "steps_per_print": 1_000_000,
        }


# The order is that of training, in one pair of processes for each backend by day, and another by night. ZeRO
# 3 replaces `torch.nn.functional.linear` in the process and leaves it so, and its own rounds otherwise: what
# comes before is trained as it would be alone. A pipeline leaves its topology behind, so it comes last.
CONFIGURATIONS = {
    configuration.name: configuration
    for configuration in (
        Configuration("ZeRO 0", saves=True),
        Configuration("ZeRO 1", zero=1, by_night=True),
        Configuration("ZeRO 2", zero=2, saves=True),
        Configuration("bf16, ZeRO 0", bf16=True, by_night=True),
        Configuration("bf16, ZeRO 1", zero=1, bf16=True),
        Configuration("gradient accumulation, ZeRO 0", accumulation=3, by_night=True),
        Configuration("gradient accumulation, ZeRO 2", zero=2, accumulation=3),
        Configuration("activation checkpointing, ZeRO 0", checkpointing=True),
        Configuration("FusedAdam, ZeRO 1", zero=1, fused=True, by_night=True),
        Configuration(
            "offloaded optimizer, ZeRO 2", zero=2, offload=True, by_night=True
        ),
        Configuration("ZeRO 3", zero=3, saves=True),
        Configuration("ZeRO 3, zero.Init", zero=3, init=True),
        Configuration("bf16, ZeRO 3", zero=3, bf16=True, by_night=True),
        Configuration(
            "gradient accumulation, ZeRO 3", zero=3, accumulation=3, by_night=True
        ),
        Configuration(
            "activation checkpointing, ZeRO 3",
            zero=3,
            checkpointing=True,
            by_night=True,
        ),
        Configuration(
            "offloaded optimizer, ZeRO 3", zero=3, offload=True, by_night=True
        ),
        Configuration("pipeline of 2 stages", pipeline=2, accumulation=2),
    )
}
