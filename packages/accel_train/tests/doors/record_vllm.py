"""Write what vLLM's `Platform` has in some releases: `record_vllm.py 0.33.0=vllm/platforms/interface.py ...`.

Each file comes from a wheel that was downloaded without what it depends on:
`pip download --no-deps vllm==0.33.0`, `unzip vllm-*.whl 'vllm/platforms/*'`.
"""

import ast
import json
import sys
from pathlib import Path

RECORD = Path(__file__).with_suffix(".json").with_name("vllm_platform.json")


def members(source):
    """The members that have no underscore in front, each with its kind and its parameters."""
    (platform,) = (
        node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == "Platform"
    )
    found = {}
    for node in platform.body:
        if isinstance(node, ast.AnnAssign):
            found[ast.unparse(node.target)] = "attribute"
        elif isinstance(node, ast.FunctionDef):
            kind = next((ast.unparse(one) for one in node.decorator_list), "method")
            parameters = [one.arg for one in node.args.args[1:]]
            found[node.name] = f"{kind}({', '.join(parameters)})"
    return {name: kind for name, kind in found.items() if not name.startswith("_")}


if __name__ == "__main__":
    recorded = {}
    for given in sys.argv[1:]:
        release, _, file = given.partition("=")
        for name, kind in members(Path(file).read_text()).items():
            recorded.setdefault(name, {}).setdefault(kind, []).append(release)
    RECORD.write_text(json.dumps(dict(sorted(recorded.items())), indent=1) + "\n")
