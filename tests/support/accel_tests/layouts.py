"""Distributions on disk, in every form in which Python finds one.

Each function writes one distribution below `root` and returns the entry for `sys.path` that shows it.
`groups` is what `entry_points.txt` holds: `{"accel.backends": {"npu": "accel_npu"}}`; `modules` is source
by module name.
"""

from accel_testing.distributions import entry_points_text, metadata_text
from accel_testing.distributions import write_distribution as dist_info
from accel_testing.distributions import write_files as _write

GROUP = "accel.backends"


def _sources(modules):
    return {f"{name.replace('.', '/')}.py": source for name, source in modules.items()}


def egg_info(root, name, version, groups=None, modules=None):
    """What `python setup.py develop` leaves beside the sources: a folder without a version in its name."""
    info = f"{name.replace('-', '_')}.egg-info"
    files = {
        f"{info}/PKG-INFO": metadata_text(name, version),
        **_sources(modules or {}),
    }
    if groups is not None:
        files[f"{info}/entry_points.txt"] = entry_points_text(groups)
    _write(root, files)
    return root


def editable(root, name, version, groups=None, modules=None):
    """`pip install -e`: metadata in site-packages, a .pth file that names the folder with the sources."""
    sources = root.parent / f"{name}-checkout" / "src"
    _write(sources, _sources(modules or {}))
    dist_info(root, name, version, groups)
    _write(root, {f"_{name}.pth": f"{sources}\n"})
    return root
