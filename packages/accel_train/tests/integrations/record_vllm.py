"""Write what vLLM's `Platform` has in some releases: `record_vllm.py 0.33.0=vllm/platforms/interface.py ...`.

Each file comes from a wheel that was downloaded without what it depends on:
`pip download --no-deps vllm==0.33.0`, `unzip vllm-*.whl 'vllm/platforms/*'`.
"""

import ast
import json
import sys
from pathlib import Path

RECORD = Path(__file__).with_name("vllm_platform.json")
#: Members about devices: the others are none of ours.
DEVICE = """
    check_if_supports_dtype device_control_env_var device_name device_type dispatch_key
    dist_backend get_all_gpu_pci_bus_ids get_compile_backend get_current_memory_usage get_device_capability
    get_device_name get_device_total_memory get_device_uuid is_integrated_gpu is_pin_memory_available
    manual_seed_all num_compute_units ray_device_key ray_noset_device_env_vars set_device
    simple_compile_backend supported_dtypes supports_fp8
""".split()  # noqa: SIM905


def members(source):
    """The members about devices, each with its kind and its parameters."""
    (platform,) = (
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == "Platform"
    )
    found = {}
    for node in platform.body:
        if isinstance(node, ast.AnnAssign):
            found[ast.unparse(node.target)] = "attribute"
        elif isinstance(node, ast.FunctionDef):
            kind = next((ast.unparse(one) for one in node.decorator_list), "method")
            parameters = [one.arg for one in node.args.args[1:]]
            found[node.name] = f"{kind}({', '.join(parameters)})"
    return {name: found.get(name, "absent") for name in DEVICE}


if __name__ == "__main__":
    files = dict(given.split("=", 1) for given in sys.argv[1:])
    read = [members(Path(file).read_text()) for file in files.values()]
    if any(found != read[0] for found in read):
        sys.exit(
            f"the releases differ: {[found.items() - read[0].items() for found in read]}"
        )
    RECORD.write_text(
        json.dumps({"releases": [*files], "members": read[0]}, indent=1) + "\n"
    )
