"""The smallest program: import torch and the vendor's package, and compute on each device.

`trial.run` passes this source code to `python -c`, so that the working folder is on the path,
as the folder of a script would be. Until the imports have succeeded, this program imports only
`sys`, because a module in the working folder may shadow any other module.
"""

import sys

#: True for mypy alone: nothing but `sys` is imported here.
MYPY = False
if MYPY:
    from collections.abc import Callable
    from typing import Any, TextIO


def main(folder: str, job: "dict[str, Any]") -> None:
    """Run `job`, and write the stages and the result to the files of `accel_core.sandbox.child`.

    `job` has these keys:

    - `path`: the folders that replace Python's path; empty to keep Python's path.
    - `start`: the lines of start-up files to run.
    - `without_folder`: whether to remove the script's folder from the path.
    - `modules`: the modules to import, in this order.
    - `verdict`, `others`: the backends for the computation; `verdict` is `None` to only import.
    - `counts_only`: whether to only count the devices.
    - `own_path`: the folders with accel's packages.
    """
    with open(folder + "/log", "w", encoding="ascii") as log:  # noqa: PTH123
        result = _run(job, lambda stage: _write(log, {"stage": stage}))
    with open(folder + "/answer.json", "w", encoding="ascii") as file:  # noqa: PTH123
        _write(file, result)
    if sys.stderr is not None:
        sys.stderr.flush()
    # No exit handlers: those of vendors may hang.
    sys.modules["posix" if "posix" in sys.modules else "nt"]._exit(0)


def _run(job: "dict[str, Any]", stage: "Callable[[str], None]") -> "dict[str, Any]":
    """Import the modules and compute; return the result or the error of a failed import."""
    if job["without_folder"]:
        del sys.path[0]
    if job["path"]:
        sys.path[:] = [*sys.path[:1], *job["path"]]
    for line in job["start"]:
        exec(line, {})  # as the module `site` does
    imported: list[str] = []
    for module in job["modules"]:
        stage("import " + module)
        try:
            __import__(module)
        except (Exception, SystemExit) as error:
            return _failure(module, imported, error)
        imported.append(module)
    result = {"imported": imported, "error": "", "places": [], "loaded": []}
    if job["verdict"] is None:
        return result
    sys.path += [entry for entry in job["own_path"] if entry not in sys.path]
    from accel_tools.doctor.experiments.computing import compute

    return {**result, **compute(job, stage)}


def _failure(
    module: str, imported: list[str], error: BaseException
) -> "dict[str, Any]":
    """Return the root cause of an error, the files in its tracebacks, and all loaded files."""
    chain = _chain(error)
    text = type(chain[-1]).__name__ + ": " + str(chain[-1])
    places = []
    for link in chain:
        trace = link.__traceback__
        while trace is not None:
            places.append(trace.tb_frame.f_code.co_filename)
            trace = trace.tb_next
    return {
        "imported": imported,
        "module": module,
        "error": text.rstrip(": "),
        "places": places,
        "loaded": _loaded(),
    }


def _chain(error: BaseException) -> "list[BaseException]":
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


def _loaded() -> list[list[str]]:
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
    number = ord(character)
    if number > 0xFFFF:
        return "?"
    if 32 <= number < 127 and character not in '"\\':
        return character
    return f"\\u{number:04x}"


if __name__ == "__main__":
    main(sys.argv[1], eval(sys.argv[2]))
