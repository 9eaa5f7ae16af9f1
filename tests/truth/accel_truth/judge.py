"""Hold what is named against the tree and against the record of what others have."""

from functools import cached_property

import tomllib

from accel_truth.collect import KINDS, OURS


class Outside:
    """The record of others' names: each source of facts with the names that were read there."""

    def __init__(self, text):
        self.sources = tomllib.loads(text)["source"]
        #: Of each kind, the names; of options, `program option`.
        self.names = {kind: set() for kind in KINDS}
        self.used = set()
        self.twice = []
        for source in self.sources:
            for kind in KINDS:
                listed = source.get(kind, [])
                program = f"{source['program']} " if kind == "option" and listed else ""
                for name in (f"{program}{name}" for name in listed):
                    if name in self.names[kind]:
                        self.twice.append(f"{kind} {name}: on record twice")
                    self.names[kind].add(name)

    @cached_property
    def programs(self):
        return tuple(
            {source["program"] for source in self.sources if "option" in source}
        )

    def options_of(self, program):
        split = (name.rpartition(" ") for name in self.names["option"])
        return {option for given_to, _, option in split if given_to == program}

    def has(self, kind, name):
        """Whether a name is on record, which is then used."""
        for recorded in self.names[kind]:
            same = recorded == name or (kind == "variable" and recorded == f"{name}*")
            if kind == "option":
                same = recorded == name or (
                    " " not in name and recorded.endswith(f" {name}")
                )
            if same:
                self.used.add((kind, recorded))
                return True
        return False

    def unused(self):
        every = {(kind, name) for kind, names in self.names.items() for name in names}
        return [
            f"{kind} {name}: on record, and nobody names it"
            for kind, name in sorted(every - self.used)
        ]


class Judge:
    """What is wrong with the names that texts hold."""

    def __init__(self, known, outside):
        self.known = known
        self.outside = outside

    def faults(self, names):
        """A line for each name that is nowhere, with the first place that has it."""
        said = {}
        for name in names:
            beside = name.text.file if name.kind in ("link", "file") else ""
            key = f"{name.within} {name.kind} {name.value} {beside}"
            if key not in said:
                wrong = self._wrong(name)
                place = f"{name.text.file.relative_to(self.known.root).as_posix()}:{name.text.line}"
                said[key] = f"{place}: {wrong}" if wrong else ""
        return [line for line in said.values() if line]

    def superfluous(self):
        """What is on record as others' although this tree has it."""
        own = {
            "variable": self.known.variables,
            "group": self.known.groups,
            "distribution": set(self.known.projects),
            "prose": set(self.known.commands),
        }
        return self.outside.twice + [
            f"{kind} {name}: on record as others', and this tree has it"
            for kind, names in own.items()
            for name in sorted(names & self.outside.names[kind])
        ]

    def _wrong(self, name):
        kind, value = name.kind, name.value
        known, outside = self.known, self.outside
        match kind:
            case "command" | "prose":
                if value in known.commands or (
                    kind == "prose" and outside.has(kind, value)
                ):
                    return ""
                return f"accel has no command {value}"
            case "line":
                return known.line(value, outside.options_of("deepspeed"))
            case "option":
                return self._option(value, name.within)
            case "value":
                return known.value(value)
            case "link":
                wrong = known.link(value, name.text.file)
                return wrong and f"link to {value}: {wrong}"
            case "session":
                return (
                    ""
                    if value in known.sessions
                    else f"noxfile.py has no session {value}"
                )
            case "file":
                found = known.file(value, name.text.file) or outside.has(kind, value)
                return "" if found else f"there is no file {value}"
            case "module":
                found = known.module(value) or outside.has(kind, value)
                return "" if found else f"python -m {value}: there is no such module"
            case "attribute":
                return "" if known.attribute(value) else f"there is no {value}"
            case "extra":
                return (
                    "" if known.extra(value) else f"pyproject.toml has no extra {value}"
                )
        here = {
            "variable": known.variables | known.identifiers,
            "group": known.groups,
            "distribution": set(known.projects),
            "url": set(),
        }[kind]
        if value in here or outside.has(kind, value):
            return ""
        return f"{kind} {value} is neither in this tree nor on record in tests/truth/outside.toml"

    def _option(self, option, program):
        if option == "--help":  # every program's
            return ""
        if program == OURS:
            return (
                "" if option in self.known.options else f"accel has no option {option}"
            )
        if program:
            found = self.outside.has("option", f"{program} {option}")
            return (
                ""
                if found
                else f"{program} has no option {option} on record in tests/truth/outside.toml"
            )
        if self.outside.has("option", option) or option in self.known.options:
            return ""
        return f"no command here has an option {option}, nor is one on record in tests/truth/outside.toml"
