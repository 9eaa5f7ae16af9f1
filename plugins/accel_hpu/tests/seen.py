"""Texts of errors that users met, and words of the next step; tests/contracts/test_plugins.py reads them."""

SEEN = [
    ("Stock PyTorch version 2.13.0+cpu is not supported in Lazy mode.", "PT_HPU_LAZY_MODE=0"),
    ("'NoneType' object has no attribute 'startswith'", "PT_HPU_LAZY_MODE=0"),
    ("Error: Compile-time major/minor PyTorch version 2.5.1 differs from run-time 2.13.0.", "one Gaudi"),
    ("No module named 'habana_frameworks.torch'", "accel setup hpu"),
    ("libSynapse.so: cannot open shared object file: No such file or directory", "hl-smi"),
    ("libhabana_pytorch2_plugin.upstream.so: undefined symbol: _ZN5torch", "one Gaudi release"),
    ("synStatus=8 [Device not found] Device acquire failed.", "one process can use one module"),
    ("invalid literal for int() with base 10: ''", "HABANA_VISIBLE_MODULES"),
    ("Allocation failed for size::4294967296 (4096)MB: out of memory", "hl-smi"),
]
