"""`torch.mlu.cncl`, simulated."""


def is_cncl_available():
    return True


def version():
    return (1, 20, 1)
