"""A stand-in for CANN, Huawei's runtime, in which the real torch_npu package runs without an Ascend card."""
