"""Start the `accel` command, also as `python -m accel_core`.

A file on PYTHONPATH that shadows a module of the standard library, such as `random.py`,
makes many imports fail, including those of this command. The command then restarts
without the PYTHON* variables, so that it can report the file. Its child processes keep
the variables.
"""

import os
import sys


def main() -> None:
    """Run the `accel` command with this process's arguments."""
    try:
        from accel_core.cli import main as run_command
    except Exception as error:
        file = _shadowing_file(error)
        if file and not sys.flags.ignore_environment:
            _restart_without_variables(file, error)
        raise
    run_command()


def _shadowing_file(error: Exception) -> str:
    """Return the file on PYTHONPATH that shadows a module of the standard library, or
    an empty string if there is none.
    """
    python_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    # A file that fails while it is imported is in the traceback only.
    trace = error.__traceback__
    while trace is not None:
        files.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    for file in files:
        folder, name = os.path.split(file or "")
        module, _, _extension = name.partition(".")
        is_on_python_path = folder != "" and folder in python_path
        if is_on_python_path and module in sys.stdlib_module_names:
            return str(file)
    return ""


def _restart_without_variables(file: str, error: Exception) -> None:
    """Restart this command without the PYTHON* variables."""
    sys.stderr.write(
        f"accel: Python imports {file} instead of the standard library's module: {error}\n"
        "accel: next step: rename that file, or remove its folder from PYTHONPATH. "
        "This command now restarts without PYTHONPATH.\n"
    )
    sys.stderr.flush()
    program = "from accel_core.__main__ import main; main()"
    os.execv(sys.executable, [sys.executable, "-E", "-c", program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
