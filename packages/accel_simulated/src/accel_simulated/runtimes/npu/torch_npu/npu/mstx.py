"""`torch.npu.mstx`, simulated: the vendor's profiler ranges, which have a domain."""

from accel_simulated.parts import ranges as _sim_ranges


class mstx:
    @staticmethod
    def mark(message, stream=None, domain="default"):
        _sim_ranges.mark(message)

    @staticmethod
    def range_push(message, stream=None, domain="default"):
        return _sim_ranges.range_push(message)

    @staticmethod
    def range_pop(domain="default"):
        return _sim_ranges.range_pop()

    @staticmethod
    def range_start(message, stream=None, domain="default"):
        return _sim_ranges.range_start(message)

    @staticmethod
    def range_end(range_id, domain="default"):
        _sim_ranges.range_end(range_id)

    @staticmethod
    def mstx_range(message, stream=None, domain="default"):
        return _sim_ranges.range(message)
