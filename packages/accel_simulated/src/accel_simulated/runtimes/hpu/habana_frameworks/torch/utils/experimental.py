"""`habana_frameworks.torch.utils.experimental`, simulated: the one function that plugins call."""


def _is_fp16_supported():
    return True
