"""Operators that Optimum for Gaudi imports by name. The simulated operators cannot be called."""

from accel_simulated import vendor_package


class FusedSDPA:
    """A placeholder for Habana's fused attention, which frameworks can import but not run.

    In Habana's package, this class is a `torch.autograd.Function`.
    """

    apply = staticmethod(
        vendor_package.unsupported_operators(
            "habana_frameworks.torch.hpex.kernels", "FusedSDPA"
        )["FusedSDPA"]
    )
