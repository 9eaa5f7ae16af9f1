"""Texts of errors that users met, and words of the next step; tests/contracts/test_plugins.py reads them."""

SEEN = [
    ("The operator 'aten::foo' is not currently implemented for the MPS device.", "FALLBACK=1"),
    ("MPS backend out of memory (MPS allocated: 17.9 GB, max allowed: 18.1 GB)", "WATERMARK"),
    ("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64.", "float32"),
    ("BFloat16 is not supported on MPS", "macOS to 14"),
    ("The MPS backend is supported on MacOS 14.0+. Current OS version can be queried using", "macOS to 14"),
    ("module 'torch._C' has no attribute '_mps_deviceSynchronize'", "arm64"),
    ("PyTorch is not linked with MPS", "arm64"),
]
