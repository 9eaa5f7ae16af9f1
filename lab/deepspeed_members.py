"""Extract the names and parameters of DeepSpeed's accelerator interface from its source distribution.

    pip download deepspeed==0.19.8 --no-deps --no-binary deepspeed -d /tmp/sdist
    python lab/deepspeed_members.py /tmp/sdist/deepspeed-0.19.8.tar.gz \
        > tests/accelerators/data/deepspeed_members.json

Nothing of DeepSpeed is imported or kept but these names: they are the calling convention that its users'
code relies on.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

_CLASS = "DeepSpeedAccelerator"
_FILE = "accelerator/abstract_accelerator.py"


def main(sdist: Path) -> int:
    """Print the snapshot of `sdist` as JSON."""
    with tarfile.open(sdist) as archive:
        member = next(m for m in archive if m.name.partition("/")[2] == _FILE)
        stream = archive.extractfile(member)
        if stream is None:
            raise SystemExit(f"{sdist} has no readable {_FILE}")
        tree = ast.parse(stream.read())
    snapshot = {
        "provenance": {
            "distribution": "deepspeed",
            "sdist": sdist.name,
            "sha256": hashlib.sha256(sdist.read_bytes()).hexdigest(),
            "file": _FILE,
            "class": _CLASS,
            "by": "lab/deepspeed_members.py",
        },
        "members": members(tree),
    }
    json.dump(snapshot, sys.stdout, indent=1, sort_keys=True)
    print()
    return 0


def members(tree: ast.Module) -> dict[str, Any]:
    """Every member of the class: its kind, and its parameters without `self`."""
    body = next(
        n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == _CLASS
    ).body
    found: dict[str, Any] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("__"):
            decorators = {
                ast.unparse(d).rpartition(".")[2] for d in node.decorator_list
            }
            if "property" in decorators:
                found[node.name] = {"kind": "property"}
            else:
                kind = "staticmethod" if "staticmethod" in decorators else "method"
                found[node.name] = {
                    "kind": kind,
                    "parameters": parameters(node.args, kind == "method"),
                }
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found[target.id] = {"kind": "attribute"}
    return found


def parameters(arguments: ast.arguments, bound: bool) -> list[dict[str, Any]]:
    """The parameters as records of name, kind (of `inspect.Parameter`) and whether they are required."""
    positional = [*arguments.posonlyargs, *arguments.args]
    first_default = len(positional) - len(arguments.defaults)
    records = [
        {
            "name": argument.arg,
            "kind": "POSITIONAL_OR_KEYWORD",
            "required": place < first_default,
        }
        for place, argument in enumerate(positional)
    ][1 if bound else 0 :]
    if arguments.vararg is not None:
        records.append(
            {"name": arguments.vararg.arg, "kind": "VAR_POSITIONAL", "required": False}
        )
    for argument, default in zip(
        arguments.kwonlyargs, arguments.kw_defaults, strict=True
    ):
        records.append(
            {"name": argument.arg, "kind": "KEYWORD_ONLY", "required": default is None}
        )
    return records


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
