"""Texts of errors that users met, and words of the next step; tests/contracts/test_plugins.py reads them."""

SEEN = [
    ("ABORTED: The TPU is already in use by process with pid 17", "/tmp/libtpu_lockfile"),
    ("No module named 'libtpu'", "accel setup tpu"),
    ("current_device is internal to TorchTPU and can only be called by the PyTorch", "torch.accelerator"),
    ("cannot access or re-initialize TPU in a forked subprocess", "spawn"),
    ("undefined symbol: _ZN2at", "accel setup tpu"),
    ("register_privateuse1_backend() has already been set! Current: npu. privateuse1", "process of its own"),
    ("torch.compile(..., backend='inductor') on TPU is experimental", "get_compile_backend()"),
]
