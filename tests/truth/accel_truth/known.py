"""What this tree has of all that can be named, read from where it is made."""

import builtins
import contextlib
import importlib
import importlib.util
import io
import re
import shlex
from functools import cached_property
from types import ModuleType

import click
import tomllib
from accel_tests import variables
from accel_tests.tools import load

from accel_core.cli import accel
from accel_core.errors import AccelError, SettingError
from accel_core.exceptions import OWN_MODULES
from accel_train.launch import command_line

#: Tried as the script of a command line that names none.
SCRIPT = ["1", "train.py"]
#: A name in capitals that a module or a class gives a value.
#: A keyword argument on a line of its own has no space before its sign.
CONSTANT = re.compile(r"^\s*([A-Z][A-Z0-9_]+)(?::[^=\n]+)? =(?!=)", re.MULTILINE)
#: What the tools and the devices made for tests read; the sources of users' variables are others.
READS = re.compile(
    r"\"((?:DEV_|ACCEL_SIMULATE|ACCEL_CACHE|XDG_CACHE|STANDIN_)[A-Z0-9_]*)\""
)


class Known:
    """The names of the tree at `root`."""

    def __init__(self, root):
        self.root = root

    # ------------------------------------------------------------------ commands

    @cached_property
    def commands(self):
        context = click.Context(accel)
        found = {
            name: accel.get_command(context, name)
            for name in accel.list_commands(context)
        }
        return {name: command for name, command in found.items() if command is not None}

    @cached_property
    def options(self):
        """Of the command line, of what it starts, and of the tools that sessions start."""
        found = {
            option
            for command in (accel, *self.commands.values())
            for parameter in command.params
            for option in (*parameter.opts, *parameter.secondary_opts)
        }
        found |= {
            "--help",
            "--version",
            *command_line.OPTIONS,
            *command_line.FLAGS,
            *self.torchrun,
        }
        for folder in (
            "src",
            "packages",
            "tools",
            "lab",
            "benchmarks",
            "examples",
            "docs/tutorial",
        ):
            for file in (self.root / folder).rglob("*.*"):
                if file.suffix in (".py", ".md"):
                    code = file.read_text(encoding="utf-8")
                    found |= set(re.findall(r"add_argument\(\s*\"(--[\w-]+)\"", code))
        # What reads its arguments without a parser: the ranks' start, and the sessions' tools.
        for file in (
            self.root / "packages/accel_train/src/accel_train/launch/worker.py",
            *self.root.glob("tools/*.py"),
            *self.root.glob("lab/*.py"),
        ):
            found |= set(
                re.findall(r"\"(--[a-z-]+)=?\"", file.read_text(encoding="utf-8"))
            )
        return found

    @cached_property
    def torchrun(self):
        return {
            option
            for action in command_line._torchrun_parser()._actions
            for option in action.option_strings
        }

    def line(self, words, launcher):
        """What is wrong with the words behind `accel`; empty for nothing. `launcher`: DeepSpeed's options."""
        given = [word for word in shlex.split(words) if word not in ("…", "...")]
        given = [re.sub(r"[\[\]]", "", word) for word in given]
        name, *rest = [word for word in given if word not in ("-v", "--verbose")] or [
            "--help"
        ]
        if name.startswith("-"):
            known = {option for parameter in accel.params for option in parameter.opts}
            return (
                ""
                if name in {*known, "--help", "-h"}
                else f"accel has no option {name}"
            )
        if name not in self.commands:
            return f"accel has no command {name}"
        if name == "run":
            return self._run(rest)
        if name == "deepspeed":
            own = rest[
                : next(
                    (n for n, word in enumerate(rest) if word.endswith(".py")),
                    len(rest),
                )
            ]
            wrong = [w for w in own if w.startswith("--") and w not in launcher]
            return f"DeepSpeed's launcher has no option {wrong[0]}" if wrong else ""
        return self._click(name, rest)

    def _click(self, name, rest):
        # An option that is only spoken of has no value; a place for a number holds a letter.
        # Below the group, as a command keeps the names of `--help` that it was first made with.
        group = click.Context(accel, **accel.context_settings)
        for tried in (rest, [*rest, "1"]):
            try:
                self.commands[name].make_context(
                    name, [re.sub("^N$", "1", w) for w in tried], group
                )
            except click.exceptions.Exit:
                return ""
            except click.MissingParameter:
                return ""
            except click.BadOptionUsage as error:
                said = f"accel {name}: {error.format_message()}"
            except click.UsageError as error:
                if "No such file" in str(error) or "FILE" in rest:
                    return ""
                return f"accel {name}: {error.format_message()}"
            else:
                return ""
        return said

    @staticmethod
    def _run(rest):
        said = io.StringIO()
        given = [re.sub("^N$", "1", word) for word in rest]
        try:
            with (
                contextlib.redirect_stderr(said),
                contextlib.redirect_stdout(io.StringIO()),
            ):
                command_line.parse([*given, *SCRIPT])
        except SystemExit as ended:
            return (
                f"accel run: {said.getvalue().splitlines()[-1]}" if ended.code else ""
            )
        except AccelError as error:
            return f"accel run: {error}"
        return ""

    # ------------------------------------------------------------------ variables

    @cached_property
    def variables(self):
        """Those that accel_core reads, and those of the tools, the sessions and the tests' own devices."""
        found = set(variables.NAMES)
        found |= set(
            re.findall(
                r"\$\{([A-Z_]+):", (self.root / "dev").read_text(encoding="utf-8")
            )
        )
        view = (
            self.root
            / "packages/accel_train/src/accel_train/deepspeed/_launcher_view.py"
        )
        found |= set(
            re.findall(
                r'^PLACEHOLDER = "(\w+)"',
                view.read_text(encoding="utf-8"),
                re.MULTILINE,
            )
        )
        for place in (
            "tools",
            "lab",
            "packages/accel_simulated/src",
            "plugins/accel_npu/tests/real",
        ):
            for file in (self.root / place).rglob("*.*"):
                if file.suffix in (".c", ".cpp", ".h", ".py"):
                    found |= set(READS.findall(file.read_text(encoding="utf-8")))
        return found

    def value(self, assignment):
        """What is wrong with `NAME=value`, by the variable's own parser."""
        name, _, value = assignment.partition("=")
        try:
            for variable in variables.variables():
                if variable.name == name:
                    variable.read({name: value})
        except SettingError as error:
            return str(error)
        return ""

    @cached_property
    def identifiers(self):
        """Names in capitals that the code defines, which look like variables of the environment."""
        found = set(dir(builtins))
        for module in ("os", "socket", "stat"):
            found |= set(dir(importlib.import_module(module)))
        for place in ("src", "packages", "plugins", "tests"):
            for file in self.root.joinpath(place).rglob("*.py"):
                found |= set(CONSTANT.findall(file.read_text(encoding="utf-8")))
        return found - {name for name in found if name.startswith(("ACCEL_", "DS_"))}

    # ------------------------------------------------------------------ distributions

    @cached_property
    def projects(self):
        found = {}
        for file in [
            self.root / "pyproject.toml",
            *self.root.glob("p*/*/pyproject.toml"),
        ]:
            project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
            found[project["name"]] = project
        return found

    @cached_property
    def groups(self):
        return {
            group
            for project in self.projects.values()
            for group in project.get("entry-points", {})
        }

    def extra(self, asked):
        name, _, extra = asked.removesuffix("]").partition("[")
        return extra in self.projects.get(name, {}).get("optional-dependencies", {})

    # ------------------------------------------------------------------ files

    @cached_property
    def sessions(self):
        return load("bootstrap").sessions().keys()

    def file(self, pattern, beside):
        """Whether a path that is named is there: from the tree, from a package, beside the document."""
        pattern = re.sub(r"<[^>]*>", "*", pattern)
        suffixes = (
            ("", ".md") if beside.suffix == ".md" else ("",)
        )  # a table of contents leaves it out
        core = self.root / "src/accel_core"
        places = (self.root, core.parent, core, self.root / "tests", beside.parent)
        return any(
            next(place.glob(f"{pattern}{suffix}"), None)
            for place in places
            for suffix in suffixes
        )

    def link(self, target, beside):
        """What is wrong with a relative link; empty for nothing."""
        path, _, anchor = target.partition("#")
        file = beside.parent / path if path else beside
        if not file.exists():
            return "no such file"
        if (
            anchor
            and file.suffix == ".md"
            and anchor not in anchors(file.read_text(encoding="utf-8"))
        ):
            return f"{file.relative_to(self.root)} has no heading for #{anchor}"
        return ""

    def module(self, dotted):
        """Whether `python -m` finds it: in this tree, or where the tests run."""
        parts = dotted.split(".")
        if parts[0] in OWN_MODULES:
            return self.attribute(dotted)
        if (self.root / parts[0]).is_dir():
            place = self.root.joinpath(*parts)
            return place.is_dir() or place.with_suffix(".py").is_file()
        return importlib.util.find_spec(parts[0]) is not None

    @staticmethod
    def attribute(dotted):
        """Whether `accel_core.…`, or another of ours, is a module, or a name that one holds."""
        module, found = importlib.import_module(dotted.partition(".")[0]), True
        for name in dotted.split(".")[1:]:
            if not isinstance(module, ModuleType):
                break  # what a class has only its instances may know
            with contextlib.suppress(ImportError):
                importlib.import_module(f"{module.__name__}.{name}")
            found = found and hasattr(module, name)
            module = getattr(module, name, None)
        return found


def anchors(markdown):
    """The anchors that GitHub and myst give to the headings of a document."""
    without = re.sub(r"```.*?```", "", markdown, flags=re.DOTALL)
    titles = re.findall(r"^#+ (.+?) *$", without, re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in plain}
