"""verl's pool of Ray's devices, and a group of workers that each train a network on one."""

import json
import os

import ray
import torch
from verl.plugin.platform import get_platform
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.ray import RayClassWithInitArgs, RayWorkerGroup
from verl.single_controller.ray.base import ResourcePoolManager


def train(device):
    """The losses of four steps of a small network."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
    )
    inputs = torch.randn(16, 4)
    targets = inputs.sum(1, keepdim=True)
    model, inputs, targets = model.to(device), inputs.to(device), targets.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class Trainer(Worker):
    """A worker that trains on the device that verl has selected."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def losses(self):
        platform = get_platform()
        device = f"{platform.device_name}:{platform.current_device()}"
        return device, train(device)


def pool_of(devices):
    """A pool with that many devices on one node."""
    manager = ResourcePoolManager({"pool": [devices]}, {"trainer": "pool"})
    manager.create_resource_pool()
    return manager.get_resource_pool("trainer")


def main():
    # Then verl selects the device that Ray gives to a worker.
    os.environ.update(dict.fromkeys(get_platform().ray_noset_envvars(), "1"))
    # verl asks for three CPUs with each device.
    ray.init(num_cpus=8, num_gpus=2, include_dashboard=False)
    try:
        pool_of(3)
        refusal = ""
    except ValueError as error:
        refusal = str(error)
    workers = RayClassWithInitArgs(ray.remote(Trainer))
    group = RayWorkerGroup(resource_pool=pool_of(2), ray_cls_with_init=workers)
    answers = sorted(group.losses())
    ray.shutdown()
    report = {
        "devices": [device for device, _ in answers],
        "losses": [losses for _, losses in answers],
        "on the CPU": train("cpu"),
        "3": refusal,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
