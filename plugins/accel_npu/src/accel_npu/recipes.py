"""Compatible releases of torch, torch-npu and CANN, for `accel setup`.

Entry point `npu` of group `accel.recipes`; docs/howto/writing-a-plugin.md describes the keys.
"""

from __future__ import annotations

__all__ = ["RECIPE"]

_DATE = "2026-11-24"
#: The vendor's own table of releases; the Pythons are those of the wheels on PyPI.
_TABLE = "https://gitcode.com/Ascend/pytorch/blob/master/COMPATIBILITY.md"
_BOTH = ("x86_64", "aarch64")
#: Newer than the vendor's table: the release's page on PyPI requires CANN 9.1.0.
_NEWEST = {
    "torch": "2.14.0",
    "packages": ["torch-npu==2.14.0", "pyyaml", "setuptools"],
    "toolkit": "==9.1.0",
    "python": ">=3.10,<3.15",
    "architectures": list(_BOTH),
    "source": "https://pypi.org/project/torch-npu/2.14.0/",
    "date": "2026-11-30",
}

#: torch, torch-npu, CANN, Python, and the architecture if PyPI has wheels for one only.
_ROWS = (
    ("2.12.0", "2.12.0.post2", "==9.1.*", ">=3.10,<3.14"),
    ("2.11.0", "2.11.0.post2", "==9.1.*", ">=3.10,<3.14"),
    ("2.10.0", "2.10.0.post6", "==9.1.*", ">=3.10,<3.12", "x86_64"),
    ("2.10.0", "2.10.0.post6", "==9.1.*", ">=3.10,<3.13", "aarch64"),
    ("2.9.0", "2.9.0.post8", "==9.1.*", ">=3.10,<3.14"),
    ("2.7.1", "2.7.1.post10", "==9.1.*", ">=3.10,<3.14"),
    ("2.12.0", "2.12.0", "==9.1.0", ">=3.10,<3.14"),
    ("2.11.0", "2.11.0", "==9.1.0", ">=3.10,<3.14"),
    ("2.10.0", "2.10.0.post4", "==9.1.0", ">=3.10,<3.14"),
    ("2.9.0", "2.9.0.post6", "==9.1.0", ">=3.10,<3.14"),
    ("2.7.1", "2.7.1.post8", "==9.1.0", ">=3.10,<3.14"),
    ("2.10.0", "2.10.0", "==9.0.0", ">=3.10,<3.14"),
    ("2.9.0", "2.9.0.post2", "==9.0.0", ">=3.10,<3.14"),
    ("2.8.0", "2.8.0.post4", "==9.0.0", ">=3.9,<3.14"),
    ("2.7.1", "2.7.1.post4", "==9.0.0", ">=3.9,<3.14"),
    ("2.9.0", "2.9.0", "==8.5.0", ">=3.10,<3.13"),
    ("2.8.0", "2.8.0.post2", "==8.5.0", ">=3.9,<3.13"),
    ("2.7.1", "2.7.1.post2", "==8.5.0", ">=3.9,<3.13"),
    ("2.6.0", "2.6.0.post5", "==8.5.0", ">=3.9,<3.13"),
    ("2.8.0", "2.8.0", "==8.3.rc1", ">=3.9,<3.12"),
    ("2.7.1", "2.7.1", "==8.3.rc1", ">=3.9,<3.12"),
    ("2.6.0", "2.6.0.post3", "==8.3.rc1", ">=3.9,<3.12"),
    ("2.6.0", "2.6.0", "==8.2.rc1", ">=3.9,<3.12"),
)

RECIPE = {
    "url": "https://gitcode.com/Ascend/pytorch",
    "toolkit": {
        "name": "CANN",
        "url": "https://www.hiascend.com/cann",
        "files": {
            "/usr/local/Ascend/*/latest/*/ascend_*_install.info": r"(?m)^version=(\S+)",
            "/usr/local/Ascend/cann*/*/ascend_*_install.info": r"(?m)^version=(\S+)",
        },
    },
    # PyPI's torch contains CUDA (from 2.11 on for aarch64 too), and torch_npu rejects a
    # torch with another accelerator.
    "torch_index": dict.fromkeys(_BOTH, "https://download.pytorch.org/whl/cpu"),
    "rows": [
        _NEWEST,
        *(
            {
                "torch": torch,
                "packages": [f"torch-npu=={npu}", "pyyaml", "setuptools"],
                "toolkit": cann,
                "python": python,
                "architectures": list(architectures or _BOTH),
                "source": _TABLE,
                "date": _DATE,
            }
            for torch, npu, cann, python, *architectures in _ROWS
        ),
    ],
}
