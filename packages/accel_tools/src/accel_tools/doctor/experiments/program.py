"""The smallest program: import torch and the vendor's package, and compute on each device.

`trial.run` passes this source to `python -c`, so the current folder is on its path, as
the script's folder is on a script's. Until its imports have succeeded it imports
nothing else: any other module may be shadowed, too.
"""

import sys

#: True for mypy alone: nothing but `sys` is imported here.
MYPY = False
if MYPY:
    from collections.abc import Callable
    from typing import Any, TextIO


def main(folder: str, job: "dict[str, Any]") -> None:
    """Run `job`, and write the stages and the answer to the files of `accel_core.sandbox.child`.

    `job` has the keys `path` (folders in place of Python's; empty to keep those),
    `start` (lines of start-up files to run), `without_folder` (take the script's folder
    off the path), `modules` (to import in this order), `verdict` and `others` (for the
    computation; `None` to import only), `counts_only` and `ours` (folders with accel's packages).
    """
    with open(folder + "/log", "w", encoding="ascii") as log:  # noqa: PTH123
        answer = _run(job, lambda stage: _write(log, {"stage": stage}))
    with open(folder + "/answer.json", "w", encoding="ascii") as file:  # noqa: PTH123
        _write(file, answer)
    if sys.stderr is not None:
        sys.stderr.flush()
    # Handlers of vendors that are called at exit may hang.
    sys.modules["posix" if "posix" in sys.modules else "nt"]._exit(0)


def _run(job: "dict[str, Any]", stage: "Callable[[str], None]") -> "dict[str, Any]":
    if job["without_folder"]:
        del sys.path[0]
    if job["path"]:
        sys.path[:] = [*sys.path[:1], *job["path"]]
    for line in job["start"]:
        exec(line, {})  # as the module `site` does
    done: list[str] = []
    for module in job["modules"]:
        stage("import " + module)
        try:
            __import__(module)
        except (Exception, SystemExit) as error:
            return _failure(module, done, error)
        done.append(module)
    answer = {"imported": done, "error": "", "places": [], "loaded": []}
    if job["verdict"] is None:
        return answer
    sys.path += [entry for entry in job["ours"] if entry not in sys.path]
    from accel_tools.doctor.experiments.computing import compute

    return {**answer, **compute(job, stage)}


def _failure(module: str, done: list[str], error: BaseException) -> "dict[str, Any]":
    """Return the first exception of the chain, the files that raised it, and all that are loaded."""
    first: BaseException | None = error
    seen: list[BaseException] = []
    while first is not None and first not in seen:
        seen.append(first)
        earlier = first.__cause__
        if earlier is None and not first.__suppress_context__:
            earlier = first.__context__
        first = earlier
    text = type(seen[-1]).__name__ + ": " + str(seen[-1])
    places = []
    for each in seen:
        trace = each.__traceback__
        while trace is not None:
            places.append(trace.tb_frame.f_code.co_filename)
            trace = trace.tb_next
    return {
        "imported": done,
        "module": module,
        "error": text.rstrip(": "),
        "places": places,
        "loaded": _loaded(),
    }


def _loaded() -> list[list[str]]:
    """Return name and file of each module that is loaded from a file."""
    loaded = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            loaded.append([name, file])
    return loaded


def _write(file: "TextIO", value: object) -> None:
    """Write a line of JSON without the module `json`, which may be shadowed."""
    file.write(_json(value) + "\n")
    file.flush()


def _json(value: object) -> str:
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
