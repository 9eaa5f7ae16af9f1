"""Small shared libraries, built by gcc where there is one."""

import shutil
import subprocess
from pathlib import Path

COMPILER = shutil.which("gcc")


class Libraries:
    """Small libraries in a folder, each with a function of its name."""

    def __init__(self, root):
        self.root = root

    def build(self, path, *needs, versions="", flags=()):
        """Build `path`, which calls the functions of the libraries `needs`; gives the whole path."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        name = file.name.removeprefix("lib").partition(".")[0]
        called = [
            Path(need).name.removeprefix("lib").partition(".")[0] for need in needs
        ]
        source = file.with_suffix(".c")
        declared = "".join(f"int {c}(void);\n" for c in called)
        source.write_text(
            f"{declared}int {name}(void) {{ return 1{''.join(f' + {c}()' for c in called)}; }}\n"
        )
        more = list(flags)
        if versions:
            script = file.with_suffix(".map")
            script.write_text(versions)
            more.append(f"-Wl,--version-script={script}")
        linked = [str(self.root / need) for need in needs]
        command = [
            COMPILER,
            "-shared",
            "-fPIC",
            f"-Wl,-soname,{file.name}",
            "-o",
            str(file),
            str(source),
        ]
        subprocess.run([*command, *linked, *more], check=True, capture_output=True)
        return str(file)
