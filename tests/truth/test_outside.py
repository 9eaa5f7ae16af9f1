"""The record of others' names against their packages, where installed (tests, deepspeed, trainers)."""

import sys
from importlib.metadata import version
from pathlib import Path

from accel_truth.collect import KINDS


def test_each_source_is_told_and_what_it_says_stands_in_the_package(outside):
    wrong, read = [], set()
    torch = [int(part) for part in version("torch").split(".")[:2]]
    for source in outside.sources:
        assert source["from"].strip()
        named = [name for kind in KINDS for name in source.get(kind, ())]
        assert named, source
        assert set(source) <= {"from", "read-in", "program", "torch", *KINDS}, source
        path = source.get("read-in", "")
        found = next(
            (
                file
                for entry in sys.path
                if path and (file := Path(entry, path)).is_file()
            ),
            None,
        )
        if found is None or source.get("torch", torch) > torch:
            continue
        read.add(path.partition("/")[0])
        text = found.read_text(encoding="utf-8")
        wrong += [
            f"{path} does not name {name}"
            for name in named
            if name.rstrip("*") not in text
        ]
    assert not wrong, "\n".join(["", *wrong])
    assert "torch" in read  # which is always here: see conftest.py
