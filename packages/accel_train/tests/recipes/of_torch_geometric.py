"""Classify the nodes of a graph with two graph convolutions."""

import torch
from given import device, report, step
from torch_geometric.data import Data
from torch_geometric.nn.models import GCN

edges = torch.randint(0, 30, (2, 90))
data = Data(x=torch.randn(30, 8), edge_index=edges, y=torch.randint(0, 3, (30,)))
model = GCN(in_channels=8, hidden_channels=16, num_layers=2, out_channels=3)

data, model = data.to(device()), model.to(device())
logits = model(data.x, data.edge_index)
report(logits, step(model, torch.nn.functional.cross_entropy(logits, data.y)), model)
