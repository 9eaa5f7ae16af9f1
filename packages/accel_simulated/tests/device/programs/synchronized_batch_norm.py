"""Compare synchronized batch norm of two halves with batch norm of the whole on CPU."""

import json

import torch
from torch import nn

torch.manual_seed(0)
whole = torch.randn(8, 3, 5, requires_grad=True)
gradient_of_out = torch.randn(8, 3, 5)
layer = nn.BatchNorm1d(3)
nn.init.uniform_(layer.weight)
nn.init.uniform_(layer.bias)
out = layer(whole)
out.backward(gradient_of_out)

weight, bias = layer.weight.detach().to("acme"), layer.bias.detach().to("acme")
halves = [half.to("acme") for half in whole.detach().split([3, 5])]
gradients = [half.to("acme") for half in gradient_of_out.split([3, 5])]
stats = [torch.batch_norm_stats(half, 1e-5) for half in halves]
means, invstds = (torch.stack(each) for each in zip(*stats, strict=True))
counts = torch.tensor([15.0, 25.0], device="acme")
mean_of_all, var_of_all = torch.zeros(3, device="acme"), torch.ones(3, device="acme")
mean, invstd = torch.batch_norm_gather_stats_with_counts(
    halves[0], means, invstds, mean_of_all, var_of_all, 0.1, 1e-5, counts
)
outputs = [
    torch.batch_norm_elemt(half, weight, bias, mean, invstd, 1e-5) for half in halves
]
sums = [
    torch.batch_norm_backward_reduce(
        gradient, half, mean, invstd, weight, True, True, True
    )
    for gradient, half in zip(gradients, halves, strict=True)
]
of_all, centred, for_weight, for_bias = (sum(each) for each in zip(*sums, strict=True))
back = [
    torch.batch_norm_backward_elemt(
        gradient, half, mean, invstd, weight, of_all, centred, counts.int()
    )
    for gradient, half in zip(gradients, halves, strict=True)
]
pairs = {
    "out": (torch.cat(outputs), out),
    "running mean": (mean_of_all, layer.running_mean),
    "running variance": (var_of_all, layer.running_var),
    "gradient of the input": (torch.cat(back), whole.grad),
    "gradient of the weight": (for_weight, layer.weight.grad),
    "gradient of the bias": (for_bias, layer.bias.grad),
}
half = halves[0].bfloat16()
print(
    json.dumps(
        {
            "equal": {
                name: torch.allclose(one.cpu(), other, atol=1e-5)
                for name, (one, other) in pairs.items()
            },
            "type of the statistics of bfloat16": str(
                torch.batch_norm_stats(half, 1e-5)[0].dtype
            ),
            "type of the output of bfloat16": str(
                torch.batch_norm_elemt(half, weight, bias, mean, invstd, 1e-5).dtype
            ),
        }
    )
)
