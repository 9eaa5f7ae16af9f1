"""Operators that Optimum for Gaudi imports by name; none of them can be called here."""

from accel_simulated import vendor_package


class FusedSDPA:
    """Habana's attention, a `torch.autograd.Function`."""

    apply = staticmethod(
        vendor_package.not_simulated(
            "habana_frameworks.torch.hpex.kernels", "FusedSDPA"
        )["FusedSDPA"]
    )
