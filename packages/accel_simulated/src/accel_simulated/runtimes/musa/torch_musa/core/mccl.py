"""`torch.musa.mccl`, simulated."""


def version():
    return (2, 11, 4)
