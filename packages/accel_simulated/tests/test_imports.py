"""Code that runs when a module is imported later."""

import os
import sys

from accel_simulated import imports


def test_two_patches_of_one_module_are_applied_in_order(tmp_path, monkeypatch):
    """As the simulated cuda and the detector both do with torch.distributed."""
    (tmp_path / "changed_twice.py").write_text("said = []\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = list(sys.meta_path)
    for name in ("first", "second"):
        imports.on_import(
            "changed_twice",
            before=lambda name=name: monkeypatch.setitem(os.environ, name, name),
            after=lambda module, name=name: module.said.append(os.environ[name]),
        )
    import changed_twice

    assert changed_twice.said == ["first", "second"]
    assert sys.meta_path == before
