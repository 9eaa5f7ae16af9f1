"""`habana_frameworks.torch.utils.experimental`, simulated: the one function that plugins ask."""


def _is_fp16_supported():
    return True
