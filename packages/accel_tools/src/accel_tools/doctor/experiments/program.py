"""The smallest program: import torch and the vendor's package, and compute on each device.

`trial.run` passes this source code to `python -c`, so that the working folder is on the path,
as the folder of a script would be. Until the imports have succeeded, this program imports only
`sys`, because a module in the working folder may shadow any other module.
"""

import sys

#: True only for mypy, which treats this name as a constant. At run time, only `sys` is imported.
MYPY = False
if MYPY:
    from collections.abc import Callable
    from typing import Any, TextIO


def main(folder: str, job: "dict[str, Any]") -> None:
    """Run `job`, and write the stages and the result to the files of `accel_core.sandbox.child`.

    `job` has these keys:

    - `path`: the folders that replace `sys.path`, or an empty list to keep `sys.path`.
    - `start_lines`: the lines of start-up files to run.
    - `without_script_folder`: whether to remove the script's folder from `sys.path`.
    - `hidden_modules`: the modules that cannot be imported.
    - `hidden_files`: the files that do not exist for Python code.
    - `empty_folder`: the folder in which Python code finds these files instead, or creates them.
    - `opened_files_report`: the file to which the paths of opened files are written, or an empty string.
    - `modules`: the modules to import, in this order. An entry `"module:function"` means that the function
      is called after the import.
    - `verdict`: the backend on which to compute, or `None` to only import modules.
    - `other_verdicts`: all other backends.
    - `counts_only`: whether to only count the devices.
    - `accel_path`: the folders that contain accel's packages.
    """
    with _open_file_of_ours(folder + "/log") as log:
        result = _run(job, lambda stage: _write(log, {"stage": stage}))
    with open(folder + "/answer.json", "w", encoding="ascii") as file:  # noqa: PTH123
        _write(file, result)
    if sys.stderr is not None:
        sys.stderr.flush()
    # os._exit() skips exit handlers, because a vendor's exit handler may hang. The module that defines
    # it is built in, so a module in the working folder cannot shadow it.
    os_module = "posix" if "posix" in sys.modules else "nt"
    sys.modules[os_module]._exit(0)


def _open_file_of_ours(path: str) -> "TextIO":
    """Open a file to write, whose descriptor is not 0.

    If the standard input is closed, the first file that the examined program opens has the descriptor 0.
    """
    options: dict[str, Any] = {"encoding": "utf-8", "errors": "surrogateescape"}
    file: TextIO = open(path, "w", **options)  # noqa: PTH123, SIM115
    posix: Any = sys.modules.get("posix")
    if file.fileno() != 0 or posix is None:
        return file
    with file:
        other_file: TextIO = open(posix.dup(0), "w", **options)  # noqa: PTH123, SIM115
    return other_file


def _run(job: "dict[str, Any]", stage: "Callable[[str], None]") -> "dict[str, Any]":
    """Import the modules and compute.

    Returns the result of the computation, or the error of a failed import.
    """
    if job["without_script_folder"]:
        del sys.path[0]
    if job["path"]:
        # The first entry of `sys.path`, which is usually the script's folder, stays first.
        sys.path[:] = [*sys.path[:1], *job["path"]]
    for line in job["start_lines"]:
        exec(line, {})  # The module `site` runs each line in the same way.
    if job["opened_files_report"]:
        _report_opened_files(job["opened_files_report"])
    if job["hidden_files"]:
        _hide_files(frozenset(job["hidden_files"]), job["empty_folder"])
    for module in job["hidden_modules"]:
        # `import` raises ModuleNotFoundError for such an entry.
        sys.modules[module] = None  # type: ignore[assignment]
    imported: list[str] = []
    for module in job["modules"]:
        stage("import " + module)
        try:
            _import_and_call(module)
        except (Exception, SystemExit) as error:
            return _describe_failure(module, imported, error)
        imported.append(module)
    result: dict[str, Any] = {
        "imported": imported,
        "error": "",
        "traceback_files": [],
        "module_files": [],
    }
    if job["verdict"] is None:
        return result
    sys.path += [entry for entry in job["accel_path"] if entry not in sys.path]
    from accel_tools.doctor.experiments.computing import compute_on_all_devices

    return {**result, **compute_on_all_devices(job, stage)}


#: The arguments that contain a path or an address, by Python's audit events
#: (https://docs.python.org/3/library/audit_events.html).
_PATH_ARGUMENTS = {
    "open": 0,
    "os.listdir": 0,
    "os.scandir": 0,
    "socket.connect": 1,
}


def _path_of(value: object) -> str:
    """Return a path as text, or an empty string for anything else, such as a file descriptor."""
    if hasattr(value, "__fspath__"):
        value = value.__fspath__()
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    return value if isinstance(value, str) else ""


def _report_opened_files(report: str) -> None:
    """Write the path of each file that Python code opens to the file `report`, as one line."""
    lines = _open_file_of_ours(report)

    def hook(event: str, arguments: "tuple[object, ...]") -> None:
        if event not in _PATH_ARGUMENTS:
            return
        path = _path_of(arguments[_PATH_ARGUMENTS[event]])
        # Modules are files too.
        if path and not path.endswith((".py", ".pyc", ".so")):
            lines.write(path + "\n")
            lines.flush()

    sys.addaudithook(hook)


#: The functions of the module `os` whose first argument is a path.
_FUNCTIONS_OF_PATHS = (
    "access", "chmod", "listdir", "lstat", "mkdir", "open", "readlink", "remove", "rmdir", "scandir", "stat",
    "unlink", "utime",
)  # fmt: skip


def _hide_files(paths: "frozenset[str]", empty_folder: str) -> None:
    """Let Python code find or create files in an empty folder instead of at the given paths."""

    def replaced(value: object) -> object:
        path = _path_of(value)
        for hidden in paths:
            if path == hidden or path.startswith(hidden + "/"):
                return empty_folder + "/" + path.replace("/", "_")
        return value

    def hook(event: str, arguments: "tuple[object, ...]") -> None:
        address = _path_of(arguments[1]) if event == "socket.connect" else ""
        if address in paths:
            raise FileNotFoundError(2, "No such file or directory", address)

    sys.addaudithook(hook)
    # These modules were loaded before the program started.
    builtins_module, io_module = sys.modules["builtins"], sys.modules.get("io")
    targets: list[tuple[Any, str]] = [(builtins_module, "open"), (io_module, "open")]
    os_module = sys.modules.get("os")
    targets += [(os_module, name) for name in _FUNCTIONS_OF_PATHS]
    for module, name in targets:
        if hasattr(module, name):
            setattr(module, name, _with_replaced_path(getattr(module, name), replaced))


def _with_replaced_path(
    function: "Callable[..., object]", replaced: "Callable[[object], object]"
) -> "Callable[..., object]":
    """Return a function that replaces the path in its first argument, and then calls `function`."""

    def call(*arguments: object, **options: object) -> object:
        if arguments:
            arguments = (replaced(arguments[0]), *arguments[1:])
        return function(*arguments, **options)

    return call


def _import_and_call(name: str) -> None:
    """Import the module called `name`; if `name` is `"module:function"`, also call the function.

    torch's autoload imports and calls an entry point in the same way.
    """
    module, _, function_path = name.partition(":")
    __import__(module)
    if function_path:
        function: Any = sys.modules[module]
        for attribute in function_path.split("."):
            function = getattr(function, attribute)
        function()


def _describe_failure(
    module: str, imported: list[str], error: BaseException
) -> "dict[str, Any]":
    """Return the root cause of an import's error, the files in its tracebacks, and all loaded files."""
    chain = _exception_chain(error)
    root_cause = chain[-1]
    text = type(root_cause).__name__ + ": " + str(root_cause)
    raised_message = str(error) if len(chain) > 1 else ""
    traceback_files = []
    for exception in chain:
        trace = exception.__traceback__
        while trace is not None:
            traceback_files.append(trace.tb_frame.f_code.co_filename)
            trace = trace.tb_next
    return {
        "imported": imported,
        "module": module,
        "error": text.rstrip(": "),
        "raised_message": raised_message,
        "traceback_files": traceback_files,
        "module_files": _loaded_files(),
    }


def _exception_chain(error: BaseException) -> "list[BaseException]":
    """Return the exception and the exceptions that caused it; the root cause is last."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        earlier = current.__cause__
        if earlier is None and not current.__suppress_context__:
            earlier = current.__context__
        current = earlier
    return chain


def _loaded_files() -> list[list[str]]:
    """Return the name and the file of each module that was loaded from a file."""
    loaded = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            loaded.append([name, file])
    return loaded


def _write(file: "TextIO", value: object) -> None:
    """Write a value as a line of JSON, without the module `json`, which may be shadowed."""
    file.write(_json(value) + "\n")
    file.flush()


def _json(value: object) -> str:
    """Return a value that consists of plain types as JSON in ASCII."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, dict):
        pairs = [_json(str(name)) + ": " + _json(item) for name, item in value.items()]
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join([_json(item) for item in value]) + "]"
    return '"' + "".join([_escaped(character) for character in str(value)]) + '"'


def _escaped(character: str) -> str:
    """Return a character as written in an ASCII JSON string, or `?` for a character above U+FFFF."""
    code_point = ord(character)
    if code_point > 0xFFFF:  # JSON needs two escapes for it.
        return "?"
    is_printable_ascii = 32 <= code_point < 127
    if is_printable_ascii and character not in '"\\':
        return character
    return f"\\u{code_point:04x}"


if __name__ == "__main__":
    main(sys.argv[1], eval(sys.argv[2]))
