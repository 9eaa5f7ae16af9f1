"""One rank: trains configurations, one after the other, and writes down each."""

import faulthandler
import gc
import json
import os
import pkgutil
import time
from pathlib import Path
from types import ModuleType

from ds_training.configurations import BATCH, CONFIGURATIONS, SAVED_AT, STEPS

#: Seconds that one configuration may take before the ranks say where they are and end.
PATIENCE = 600


def main(names, activate, folder, checkpoints, resumed, single, written):
    if written:  # a class in the place of a plugin
        import accel_core

        accel_core.set_accelerator(pkgutil.resolve_name(written))
    if activate:
        from accel_train.deepspeed import activate as activated

        activated()
    import deepspeed
    import torch
    from deepspeed.accelerator import get_accelerator

    accelerator = get_accelerator()
    if single:
        accelerator.is_fp64_supported = lambda: False
    accelerator.set_device(int(os.environ["LOCAL_RANK"]))
    deepspeed.init_distributed(accelerator.communication_backend_name())
    for name in names:
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        report = trained(CONFIGURATIONS[name], Path(checkpoints, name), resumed)
        Path(folder, f"{name}.{torch.distributed.get_rank()}.json").write_text(
            json.dumps(report)
        )
        gc.collect()  # the engine, so that the next finds the process as it was
    faulthandler.cancel_dump_traceback_later()
    torch.distributed.destroy_process_group()
    # gloo's threads drop the last tensors with Python's lock; while Python ends this aborts (pytorch#190489).
    time.sleep(0.2)


def trained(configuration, checkpoints, resumed):
    """Train one configuration, and tell what this rank saw."""
    import torch
    from accel_tests.jobs import digest
    from deepspeed import zero
    from deepspeed.accelerator import get_accelerator

    from ds_training.text import Text

    accelerator, text, rank = get_accelerator(), Text(), torch.distributed.get_rank()
    count = configuration.accumulation
    torch.manual_seed(1)
    accelerator.manual_seed_all(1)
    engine = made(configuration, len(text.characters))
    # Both stages of a pipeline work on the same text.
    reader = 0 if configuration.pipeline > 1 else rank
    first, losses = 0, []
    if resumed:
        found, state = engine.load_checkpoint(str(checkpoints))
        assert found, f"nothing to load in {checkpoints}"
        first = state["steps"]
    for step in range(first, STEPS):
        # By the step alone, so that a run that goes on from a checkpoint drops out what the other did.
        torch.manual_seed(1000 * step + rank)
        accelerator.manual_seed_all(1000 * step + rank)
        batches = [
            text.batch(2 * micro + reader, BATCH)
            for micro in range(step * count, (step + 1) * count)
        ]
        losses.append(stepped(engine, batches, pipeline=configuration.pipeline > 1))
        if configuration.saves and not resumed and step + 1 == SAVED_AT:
            engine.save_checkpoint(str(checkpoints), client_state={"steps": step + 1})
    optimizer = engine.basic_optimizer
    operator = getattr(optimizer, "ds_opt_adam", None) or getattr(
        optimizer, "multi_tensor_adam", None
    )
    # An operator is a function, an object, or a module.
    kind = operator if hasattr(operator, "__name__") else type(operator)
    home = "" if isinstance(operator, ModuleType) else f"{kind.__module__}."
    parameters = list(engine.module.parameters())
    devices = sorted({str(parameter.device) for parameter in parameters})
    with zero.GatheredParameters(parameters, enabled=configuration.zero == 3):
        learned = digest(
            [each.detach().cpu().contiguous().view(torch.uint8) for each in parameters]
        )
    engine.destroy()
    return {
        "accelerator": f"{type(accelerator).__module__}.{type(accelerator).__qualname__}",
        "parameters on": devices,
        "collectives": torch.distributed.get_backend(),
        "operator": f"{home}{kind.__name__}",
        "first": first,
        "losses": losses,
        "parameters": learned,
    }


def made(configuration, characters):
    """DeepSpeed's engine around a new model."""
    import deepspeed

    from ds_training import model

    config = configuration.deepspeed()
    if configuration.pipeline > 1:
        from deepspeed.pipe import PipelineModule

        module = PipelineModule(
            model.layers(characters), configuration.pipeline, loss_fn=model.loss
        )
    elif configuration.init:
        with deepspeed.zero.Init(config_dict_or_path=config):
            module = model.Transformer(characters)
    else:
        checkpoint = (
            deepspeed.checkpointing.checkpoint if configuration.checkpointing else None
        )
        module = model.Transformer(characters, checkpoint)
    if configuration.checkpointing:
        deepspeed.checkpointing.configure(None, num_checkpoints=model.LAYERS)
    return deepspeed.initialize(
        model=module, model_parameters=list(module.parameters()), config=config
    )[0]


def stepped(engine, batches, *, pipeline):
    """One step of the optimizer; the loss of each micro batch, which JSON keeps bit for bit."""
    if pipeline:
        return [float(engine.train_batch(iter(batches)))]
    losses = []
    for batch in batches:
        loss = engine(*(tensor.to(engine.device) for tensor in batch))
        engine.backward(loss)
        engine.step()
        losses.append(float(loss.detach()))
    return losses
