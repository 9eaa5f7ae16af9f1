"""Steps of CPU Adam whose inputs are exact on every machine: for our operator, and for DeepSpeed's."""

import torch

#: Leaves a rest beside whole vectors of 16 and of 8 floats, and the same rest.
COUNT = 37
#: As (label, parameters' type, states' type, adamw_mode, weight_decay, bias_correction).
CASES = (
    ("AdamW", torch.float32, torch.float32, True, 0.01, True),
    ("Adam", torch.float32, torch.float32, False, 0.01, True),
    ("no decay", torch.float32, torch.float32, True, 0.0, True),
    ("no bias correction", torch.float32, torch.float32, True, 0.01, False),
    ("bfloat16", torch.bfloat16, torch.float32, True, 0.01, True),
    ("bfloat16 states", torch.bfloat16, torch.bfloat16, True, 0.01, True),
    ("float16", torch.float16, torch.float32, False, 0.01, True),
    ("float16 states", torch.float16, torch.float16, True, 0.01, True),
)


def numbers(seed, count=COUNT):
    """Numbers between -1 and 1 with many bits, by integer arithmetic and one exact scaling."""
    index = torch.arange(count, dtype=torch.int64) + seed * 1_000_003
    return ((index * 2_654_435_761 % 2**24) - 2**23).float() / 2**23


def run(op, case, count=COUNT):
    """Twelve steps on `op`, with a change of beta1 and a jump in the count; parameters and states after."""
    _, dtype, state_dtype, adamw, decay, correct = case
    p = numbers(0, count).to(dtype)
    m, v = torch.zeros(count, dtype=state_dtype), torch.zeros(count, dtype=state_dtype)
    op.create_adam(991, 1e-3, 0.9, 0.999, 1e-8, decay, adamw, False)
    for step in range(1, 13):
        g = (numbers(step, count) * 0.1).to(dtype)
        beta1 = 0.9 if step < 8 else 0.95
        counted = step if step < 11 else step + 9
        op.adam_update(
            991, counted, 1e-2, beta1, 0.999, 1e-8, decay, correct, p, g, m, v
        )
    op.destroy_adam(991)
    return p, m, v


def bits(tensor):
    """The tensor's memory in hexadecimal."""
    return tensor.contiguous().view(torch.uint8).numpy().tobytes().hex()
