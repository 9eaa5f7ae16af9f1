"""DeepSpeed's pipeline: a stage for each rank, four micro-batches a step."""

import json
import os

import deepspeed
import torch
from deepspeed.pipe import PipelineModule
from torch import nn

from accel_train.deepspeed import activate

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
activate()
deepspeed.init_distributed()


class Rows(torch.utils.data.Dataset):
    def __init__(self):
        numbers = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(64, 8, generator=numbers)
        self.targets = torch.randint(0, 4, (64,), generator=numbers)

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return self.inputs[index], self.targets[index]


def layer(seed, inputs, outputs):
    torch.manual_seed(seed)
    return nn.Linear(inputs, outputs)


layers = [layer(1, 8, 16), nn.ReLU(), layer(2, 16, 16), nn.ReLU(), layer(3, 16, 4)]
model = PipelineModule(layers, num_stages=world, loss_fn=nn.CrossEntropyLoss(), partition_method="uniform")
config = {
    "train_batch_size": 16,
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
    "gradient_clipping": 1.0,
    "steps_per_print": 1000,
}
engine, *_ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), config=config, training_data=Rows()
)
losses = [engine.train_batch().item() for _ in range(4)]
if rank == 0:
    print(json.dumps({"device": str(engine.device), "losses": losses}))
deepspeed.comm.destroy_process_group()
