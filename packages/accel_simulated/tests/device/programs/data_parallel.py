"""Run DataParallel and torch.nn.parallel.comm with whole numbers, of which no sum is rounded."""

import json

import torch
from torch import nn
from torch.nn.parallel import comm

layer = nn.Linear(2, 1, bias=False, device="cuda:0")
nn.init.ones_(layer.weight)
# Five rows, which DataParallel splits into three and two.
out = nn.DataParallel(layer)(torch.arange(10.0, device="cuda:0").view(5, 2))
out.sum().backward()
x = torch.arange(3.0, device="cuda:0")
results = {
    "scatter": comm.scatter(x, [1, 0], [1, 2], streams=[None, torch.cuda.Stream(0)]),
    "scatter into outputs": comm.scatter(
        x, out=[torch.zeros(2, device="cuda:1"), torch.zeros(1, device="cuda:0")]
    ),
    "broadcast": comm.broadcast(x, [0, 1]),
    "broadcast into outputs": comm.broadcast(x, out=[torch.zeros(3, device="cuda:1")]),
    "gather": [comm.gather([x, x], destination=-1)],
    "gather into an output": [comm.gather([x], out=torch.zeros(3))],
}
torch.cuda.synchronize()
answer = {
    name: [[str(tensor.device), tensor.tolist()] for tensor in tensors]
    for name, tensors in results.items()
}
answer["output"] = [str(out.device), out.flatten().tolist()]
answer["gradient"] = layer.weight.grad.tolist()
print(json.dumps(answer))
