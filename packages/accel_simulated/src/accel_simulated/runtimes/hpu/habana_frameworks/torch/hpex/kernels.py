"""Operators that Optimum for Gaudi imports by name; the simulated operators cannot be called."""

from accel_simulated import vendor_package


class FusedSDPA:
    """Habana's attention, a `torch.autograd.Function`."""

    apply = staticmethod(
        vendor_package.unsupported_operators(
            "habana_frameworks.torch.hpex.kernels", "FusedSDPA"
        )["FusedSDPA"]
    )
