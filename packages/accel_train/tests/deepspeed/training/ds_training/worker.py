"""One rank: trains the configurations that an order names, one after the other, and writes down each.

python -m ds_training.worker ORDER.json      (with RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT)
"""

from __future__ import annotations

import faulthandler
import gc
import hashlib
import json
import os
import sys
import time
import traceback
from pathlib import Path

from ds_training.configurations import BATCH, CONFIGURATIONS, SAVED_AT, STEPS

__all__ = ["main"]


def main(order):
    if order["activate"]:
        from accel_train.deepspeed import activate

        activate()
    import deepspeed
    import torch
    from deepspeed.accelerator import get_accelerator

    accelerator = get_accelerator()
    accelerator.set_device(int(os.environ["LOCAL_RANK"]))
    deepspeed.init_distributed(accelerator.communication_backend_name())
    rank = torch.distributed.get_rank()
    for name in order["configurations"]:
        # Ranks that wait for each other say where, and end.
        faulthandler.dump_traceback_later(order["patience"], exit=True)
        answer = Path(order["folder"], f"{name}.{rank}.json")
        try:
            report = Training(CONFIGURATIONS[name], Path(order["checkpoints"], name), order["resumed"]).run()
        except Exception:
            # The other rank may wait for this one: whoever started both ends it.
            answer.write_text(json.dumps({"error": traceback.format_exc()}))
            os._exit(1)
        temporary = answer.with_suffix(".part")
        temporary.write_text(json.dumps(report))
        temporary.replace(answer)
    faulthandler.cancel_dump_traceback_later()
    torch.distributed.destroy_process_group()
    # gloo's threads drop the last tensors with Python's lock; while Python ends this aborts (pytorch#190489).
    time.sleep(0.2)


class Training:
    """One configuration: made, trained, and destroyed, so that the next finds the process as it was."""

    def __init__(self, configuration, checkpoints, resumed):
        import deepspeed
        import torch
        from deepspeed.accelerator import get_accelerator

        from ds_training.text import Text

        self.torch, self.deepspeed = torch, deepspeed
        self.accelerator = get_accelerator()
        self.configuration = configuration
        self.checkpoints, self.resumed = checkpoints, resumed
        self.text = Text.read()
        self.rank = torch.distributed.get_rank()
        # Both stages of a pipeline work on the same text.
        self.reader = 0 if configuration.pipeline > 1 else self.rank

    def run(self):
        torch = self.torch
        torch.manual_seed(1)
        self.accelerator.manual_seed_all(1)
        engine = self.engine()
        first = 0
        if self.resumed:
            found, state = engine.load_checkpoint(str(self.checkpoints))
            assert found, f"nothing to load in {self.checkpoints}"
            first = state["steps"]
        losses = []
        for step in range(first, STEPS):
            losses.append(self.step(engine, step))
            if self.configuration.saves and not self.resumed and step + 1 == SAVED_AT:
                engine.save_checkpoint(str(self.checkpoints), client_state={"steps": step + 1})
        report = {
            "accelerator": f"{type(self.accelerator).__module__}.{type(self.accelerator).__qualname__}",
            "device": str(self.accelerator.current_device_name()),
            "parameters on": sorted({str(parameter.device) for parameter in engine.module.parameters()}),
            "collectives": torch.distributed.get_backend(),
            "optimizer": self.optimizer(engine),
            "first": first,
            "losses": [[value.hex() for value in step] for step in losses],
            "parameters": self.digest(engine.module),
        }
        engine.destroy()
        del engine
        gc.collect()
        return report

    def engine(self):
        from ds_training import model

        deepspeed, configuration, characters = self.deepspeed, self.configuration, len(self.text.characters)
        config = configuration.deepspeed()
        if configuration.pipeline > 1:
            from deepspeed.pipe import PipelineModule

            module = PipelineModule(
                model.layers(characters), num_stages=configuration.pipeline, loss_fn=model.loss
            )
        elif configuration.init:
            with deepspeed.zero.Init(config_dict_or_path=config):
                module = model.Transformer(characters)
        else:
            checkpoint = deepspeed.checkpointing.checkpoint if configuration.checkpointing else None
            module = model.Transformer(characters, checkpoint)
        if configuration.checkpointing:
            deepspeed.checkpointing.configure(None, num_checkpoints=model.LAYERS)
        engine, *_ = deepspeed.initialize(
            model=module, model_parameters=list(module.parameters()), config=config
        )
        return engine

    def step(self, engine, step):
        """One step of the optimizer; the loss of each micro batch."""
        # By the step alone, so that a run that goes on from a checkpoint drops out what the other did.
        self.torch.manual_seed(1000 * step + self.rank)
        self.accelerator.manual_seed_all(1000 * step + self.rank)
        micros = range(step * self.configuration.accumulation, (step + 1) * self.configuration.accumulation)
        if self.configuration.pipeline > 1:
            return [float(engine.train_batch(iter([self.batch(micro) for micro in micros])))]
        losses = []
        for micro in micros:
            loss = engine(*(tensor.to(engine.device) for tensor in self.batch(micro)))
            engine.backward(loss)
            engine.step()
            losses.append(float(loss.detach()))
        return losses

    def batch(self, micro):
        from ds_training.model import LENGTH

        return self.text.batch(2 * micro + self.reader, BATCH, LENGTH)

    def optimizer(self, engine):
        """The class of the optimizer that does the work, and the operator that it calls, if any."""
        optimizer = engine.basic_optimizer
        operator = getattr(optimizer, "ds_opt_adam", None) or getattr(optimizer, "multi_tensor_adam", None)
        # An operator is a function, an object, or a compiled module.
        kinds = [type(optimizer), operator if hasattr(operator, "__name__") else type(operator)]
        return [f"{getattr(kind, '__module__', '')}.{kind.__name__}" for kind in kinds]

    def digest(self, module):
        """SHA-256 over the names and bytes of all parameters."""
        named = list(module.named_parameters())
        with self.deepspeed.zero.GatheredParameters(
            [parameter for _, parameter in named], enabled=self.configuration.zero == 3
        ):
            sha = hashlib.sha256()
            for name, parameter in named:
                sha.update(name.encode())
                sha.update(parameter.detach().cpu().contiguous().view(self.torch.uint8).numpy().tobytes())
        return sha.hexdigest()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
