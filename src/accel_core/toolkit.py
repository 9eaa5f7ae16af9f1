"""Names for tools beside the core: detecting and judging candidates, steps in children, machine facts.

accel-train, accel-tools and accel-testing import this and the public names of `accel_core`, and nothing else
of it; so may anybody who writes a command for `accel` (entry points of group `accel.commands`). The four are
released together, and what stands here may change from one release to the next.

Importing it imports neither torch nor the rest: each name is resolved when it is first used.
"""

from accel_core import _by_name, _resolving

#: The names, by the module that each comes from; tools/public_names.py writes `toolkit.pyi` from it.
_HOMES = {
    # The question: candidates, what each comes to, what would be chosen.
    "detection": ("How", "discovery", "guard", "messages"),
    "detection.device": ("installed_imports",),
    "detection.discovery": ("Spoiler", "declarers", "find_candidates", "installed_names", "spoilers"),
    "detection.isolated": ("IsolatedLoader",),
    "detection.select": ("Survey", "select", "survey"),
    "operators": ("providers",),
    "ops": ("is_host_code",),
    # The process's own choice, exchanged.
    "current": ("exact", "exchange", "late_changes", "named", "overriding"),
    "accelerators.devices": ("missing_defaults", "torchs_device"),
    "accelerators.memory": ("lacks_page_locks",),
    "accelerators.cpu": ("CPUAccelerator",),
    # A step in a child process, and code that is not ours.
    "_support": ("LOGGER", "child", "fork_safe_lock", "logged_by", "packages"),
    "_support.torch_import": ("AUTOLOAD", "TORCH_GROUP", "autoload_is_on", "import_torch", "origin"),
    # The machine.
    "": ("machine as host",),
    "machine": ("devices", "placement", "vendors", "visible_devices"),
    # Settings and declarations.
    "settings": (
        "ACCEL_ALLOW", "ACCEL_PROBE", "DS_ACCELERATOR", "OURS", "Pin", "Settings", "Variable", "entry_points",
        "flag", "normalize_distribution", "parse_pin", "read as read_settings", "whole_number",
    ),
    "backend": ("ENTRY_POINT_GROUP", "EXPECTED_PREFIX", "PROJECT", "decode_backend", "is_variable_prefix"),
    # What a command prints, and with which options.
    "cli": ("output as options", "page"),
    "cli.output": ("Output", "answering", "status_of"),
}  # fmt: skip
_HOME = _by_name(_HOMES)
__all__ = sorted(_HOME)  # noqa: PLE0605 - one list of the names, not two
__getattr__ = _resolving(__name__, _HOME)


def __dir__() -> list[str]:
    return __all__
