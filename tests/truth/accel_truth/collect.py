"""The names in a text: commands with their options, variables, groups, distributions, addresses, files."""

import re
import shlex
from typing import NamedTuple

from accel_core.exceptions import OWN_MODULES
from accel_truth.texts import HOLE, Text

#: Kinds whose names may come from outside, and those that only this tree can have.
KINDS = (
    "option",
    "variable",
    "group",
    "distribution",
    "url",
    "file",
    "module",
    "prose",
)
OWN = ("command", "line", "value", "session", "link", "attribute", "extra")

#: The program whose options are not on record but asked for.
OURS = "accel"


class Name(NamedTuple):
    """Something that a text names. `within`: for an option the program it is given to, where one is named."""

    kind: str
    value: str
    text: Text
    within: str = ""


SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
#: A command and what follows it, up to where a sentence or a shell ends it.
ACCEL = re.compile(r"(?<![\w./=@\"-])accel((?: (?! )(?!-c |\W+ )[^\s`|&;,()]+)+)")
END = re.compile(r"[.:?]$")
OPTION = re.compile(r"(?<![\w(-])(?<!\()--[a-z][\w-]*|(?<=\()--[a-z][\w-]*(?![\w-]*\))")
VARIABLE = re.compile(
    r"(?<![\w.<$-])\$?\{?([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)_?\*?(?![\w(]|\.py|\.\d)"
)
ASSIGNED = re.compile(r"(?<![\w.(-])([A-Z][A-Z0-9_]*)=(?!=)([^\s`'\",;)|]*)")
EXPANDED = re.compile(r"\$\{?([A-Z][A-Z0-9_]*)")
URL = re.compile(r"https?://[^\s)>\"'`]*[^\s)>\"'`.,;:]")
#: The first argument of pip, and its extra.
PIP = re.compile(
    r"\bpip (?:un)?install (?:-\S+ )*'?([A-Za-z][\w.-]*\w)(?:\[(\w+)\])?(?![\w/])"
)
REQUIREMENT = re.compile(
    r"(?<![\w/.-])([A-Za-z][\w.-]*\w)(?:\[\w+\])?(?:==|>=|~=)(?=[\d{])"
)
OUR_DISTRIBUTION = re.compile(r"(?<![\w/.-])(accel-[a-z]+)(?![\w/-])")
GROUP = re.compile(
    r"(?<![\w./@\"-])(accel\.(?!toml\b)[a-z_]+)(?![\w(/])|entry-points\.\"([\w.]+)\""
)
SAID_GROUP = re.compile(r"groups? `([a-z_]+(?:\.[a-z_]+)+)`")
SESSION = re.compile(r"(?:\./dev|bootstrap\.py|\bnox -s)((?: [a-z][\w-]+)+)(?![\w./-])")
SAID_SESSION = re.compile(r"\bsessions? `([a-z_-]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE = re.compile(
    r"(?<![\w./-])((?:src|tests|docs|tools|lab|plugins|examples|benchmarks|changelog\.d|\.github)/[\w./*<>-]*[\w/*>])"
    r"|`((?:[\w.*-]+/)+[\w.*-]+\.(?:py|md|toml|json|cpp|svg))`"
)
_PACKAGES = "|".join(OWN_MODULES)
ATTRIBUTE = re.compile(rf"(?<![\w./])((?:{_PACKAGES})(?:\.[A-Za-z_]\w*)+)(?![\w/])")
MODULE = re.compile(r"\bpython3? (?:-\w+ )*-m ([A-Za-z_][\w.]*)")
#: A word in capitals that stands for what the reader fills in.
PLACEHOLDER = re.compile(r"^\[?<?[A-Z]+>?\]?$|…|\{\}|<")


def names(text, programs):
    """Everything that a text names; `programs` are those whose options are on record."""
    body = text.body
    exact = [body] if text.code else SPAN.findall(body)
    yield from _commands(text, exact)
    yield from _options(text, programs)
    yield from _variables(text)
    yield from _distributions(text)
    for found in GROUP.finditer(body):
        yield Name("group", found[1] or found[2], text)
    yield from (Name("group", name, text) for name in SAID_GROUP.findall(body))
    yield from (Name("url", address, text) for address in URL.findall(body))
    for words in SESSION.findall(body):
        listed = words.split() if text.code else words.split()[:1]
        yield from (Name("session", name, text) for name in listed)
    yield from (Name("session", name, text) for name in SAID_SESSION.findall(body))
    yield from (Name("attribute", dotted, text) for dotted in ATTRIBUTE.findall(body))
    yield from (Name("module", dotted, text) for dotted in MODULE.findall(body))
    yield from (Name("file", one or other, text) for one, other in FILE.findall(body))
    if text.file.suffix == ".md":
        yield from (
            Name("link", target, text)
            for target in LINK.findall(body)
            if "://" not in target
        )


def _commands(text, exact):
    """Calls of `accel`: as they would be typed in code, its command and options in a sentence."""
    for code in exact:
        for words in _typed(code):
            if words[:1] == ["accel"] and len(words) > 1:
                yield Name("line", shlex.join(words[1:]), text)
    for found in ACCEL.finditer(text.body):
        words = [
            END.sub("", word).strip("[]\"'")
            for word in _until_sentence(found[1].split())
        ]
        words = words[1:] if words and words[0] == "-v" else words
        if not words or words[0].startswith("-"):
            continue
        in_code = (
            text.code or text.body[: found.start()].count("`") % 2
        )  # a backtick is open there
        if text.file.suffix in {".md", ".jinja"} and not in_code:
            continue  # a page writes its commands as code, and "accel" in a sentence is the project
        known = "command" if in_code else "prose"
        if re.fullmatch(r"[a-z][a-z-]*", words[0]):
            yield Name(known, words[0], text)


def _until_sentence(words):
    for number, word in enumerate(words):
        if END.search(word):
            return words[: number + 1]
    return words


def _typed(code):
    """The commands of a shell's line, each as its words, without what is set before or redirected behind."""
    try:
        lexer = shlex.shlex(code, posix=True, punctuation_chars="();<>|&")
        lexer.commenters, lexer.whitespace_split = "#", True
        words = list(lexer)
    except ValueError:  # a quotation that a later line ends
        words = code.split()
    command = []
    for word in [*words, ";"]:
        if word and not set(word) - set("();<>|&"):
            if command:
                yield command
            command = [">"] if set(word) & set("<>") else []
        elif command or not re.match(r"[A-Z_]+=|host=|\$$|then$|srun$|--n", word):
            command.append(word)


def _options(text, programs):
    """Long options, with the program that stands last before them in the same command."""
    for found in OPTION.finditer(text.body):
        if f"var({found[0]})" in text.body:
            continue  # a variable of a style sheet
        before = re.split(r"[`|;&\n(]", text.body[: found.start()])[-1]
        before = re.split(r"\.py ", before)[-1]  # what follows a script is its own
        within = max(
            (*programs, OURS), key=lambda name: (_last(name, before), len(name))
        )
        yield Name(
            "option", found[0], text, within if _last(within, before) >= 0 else ""
        )


def _last(program, before):
    """Where a program's name ends last in a text, or -1."""
    found = list(re.finditer(rf"(?<![\w/.-]){re.escape(program)}(?= )", before))
    return found[-1].end() if found else -1


def _variables(text):
    body = URL.sub("", text.body)
    yield from (Name("variable", name, text) for name in VARIABLE.findall(body))
    yield from (Name("variable", name, text) for name in EXPANDED.findall(body))
    for name, value in ASSIGNED.findall(body):
        if text.code or "`" in text.body or "_" in name:
            yield Name("variable", name, text)
        if (
            value
            and not PLACEHOLDER.search(value)
            and not value.startswith(("$", HOLE))
        ):
            yield Name("value", f"{name}={value.rstrip('.:')}", text)


def _distributions(text):
    body = LINK.sub("", text.body)
    for name in [*REQUIREMENT.findall(body), *OUR_DISTRIBUTION.findall(body)]:
        yield Name("distribution", name, text)
    for name, extra in PIP.findall(text.body):
        if name != "it" and not name.endswith((".whl", "NAME")):
            yield Name("distribution", name, text)
        if extra:
            yield Name("extra", f"{name}[{extra}]", text)
