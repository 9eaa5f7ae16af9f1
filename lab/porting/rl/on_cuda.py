"""REINFORCE: the environment lives on the CPU, the policy on the device; ranks share their gradients."""

import json
import os

import torch
from torch import distributed, nn

rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
torch.cuda.set_device(device)
if world > 1:
    distributed.init_process_group("nccl")


class Balance:
    """A point that falls away from the middle: left or right, a reward for each step in which it is near."""

    def __init__(self, seed):
        self.numbers = torch.Generator().manual_seed(seed)

    def reset(self):
        self.state = torch.rand(2, generator=self.numbers) - 0.5
        return self.state

    def step(self, action):
        place, speed = self.state.tolist()
        speed += (0.2 if action else -0.2) + 0.1 * place
        self.state = torch.tensor([place + 0.2 * speed, speed])
        return self.state, 1.0, abs(place) > 1


torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2)).to(device)
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
environment, draws = Balance(rank), torch.Generator().manual_seed(rank)
losses = []
for _ in range(6):
    state, logs, rewards, done = environment.reset(), [], [], False
    while not done and len(rewards) < 30:
        chances = torch.log_softmax(policy(state.to(device)), -1)
        action = torch.multinomial(chances.detach().exp().cpu(), 1, generator=draws).item()
        logs.append(chances[action])
        state, reward, done = environment.step(action)
        rewards.append(reward)
    returns = torch.tensor(rewards, device=device).flip(0).cumsum(0).flip(0)
    loss = -(torch.stack(logs) * (returns - returns.mean())).mean()
    optimizer.zero_grad()
    loss.backward()
    if world > 1:
        for parameter in policy.parameters():
            distributed.all_reduce(parameter.grad)
            parameter.grad /= world
    optimizer.step()
    losses += [loss.item(), float(len(rewards))]
torch.cuda.empty_cache()
if rank == 0:
    print(json.dumps({"device": str(device), "losses": losses}))
if world > 1:
    distributed.destroy_process_group()
