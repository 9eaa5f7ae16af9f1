"""Remove from a report what names people, machines and folders, so that it can be shown to strangers.

It removes what is known of this machine (`identity`), in every form in which a message may quote it. It also
removes anything that looks like a path, an address, a host, a serial number or a secret, known or not, and
the names of modules that are not installed. In doubt, it removes.
"""

from __future__ import annotations

import enum
import html
import ipaddress
import json
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus, unquote, urlsplit

from accel_tools.doctor.identity import (
    ENVIRONMENT,
    HOME,
    PATH,
    Identity,
    is_public,
    may_be_told,
)

__all__ = ["Redactor"]

T = TypeVar("T")

#: The longest text that is looked at; of a longer one the end is left out.
_LONGEST = 20_000
#: Stand for the marks, and for what is settled, while a text is worked on: private-use characters.
_KEPT = 0xE100
_MARKS = {ENVIRONMENT: "\ue000", HOME: "\ue001", PATH: "\ue002"}
_PRIVATE = re.compile("[\ue000-\uf8ff]")

#: Folders that every machine has, whose names tell of toolkits and drivers.
_SYSTEM = re.compile(
    r"/(?:dev|sys|proc|lib|lib32|lib64|bin|sbin|usr/(?:lib|lib32|lib64|libexec|bin|sbin|include|share)"
    r"|usr/local/(?:lib|lib64|bin|include|cuda[\w.-]*|Ascend)|opt/(?:rocm[\w.-]*|intel|habanalabs)"
    r"|etc/(?:ld\.so[\w.]*|OpenCL|vulkan))(?:/[\w.+~:=@*?\[\]-]+)*/?"
)
#: Above folders that every machine has, and above Python's own on many.
_ABOVE = ("/usr/local",)
#: Files whose names stay, wherever they lie: a report is often about a library that is missing.
_SHARED_LIBRARY = re.compile(r"[\w.+-]+\.(?:so(?:\.[\d.]+)?|dll|dylib)")

_WORD = r"[^\s'\"<>|`]"
#: A space that may be one in a folder's name.
_SPACE = r"(?<![,;:)])(?<!\.py)(?<!\.so)(?<!\.dll) "
#: A path that begins at the root, at a home, at a drive or at a mark.
_POSIX = re.compile(
    rf"(?:(?<![\w/.\ue000-\uf8ff])(?:~[\w.-]*)?/|[\ue000-\ue002])(?:{_WORD})*"
    # Folders with spaces in their names: words, and then one with a slash.
    rf"(?:(?:{_SPACE}(?![/~]){_WORD}+){{1,4}}?(?<=[^\s/\\])[/\\]{_WORD}*)*"
)
_WINDOWS = re.compile(
    rf"(?:(?<![A-Za-z0-9])[A-Za-z]:[\\/]|(?<!\\)\\{{2,4}}[\w.$-]+\\){_WORD}*"
    rf"(?:(?:{_SPACE}{_WORD}+){{1,4}}?\\{_WORD}*)*"
)
_QUOTED = re.compile(
    r"""(['"`])((?:~?/|~[\w.-]+/|[A-Za-z]:[\\/]|\\\\|[\ue000-\ue002])[^'"`\n]*)\1"""
)
_NAME = r"[\w.+\ue100-\uf8ff-]+"
_RELATIVE = re.compile(
    rf"(?<![\w/\\.~\ue000-\uf8ff])(?:\.{{1,2}}[/\\])*{_NAME}(?:[/\\]{_NAME})+"
)
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>`]+")

_ENCODED = re.compile(r"\S*%[0-9A-Fa-f]{2}\S*")
_ASSIGNED = re.compile(
    r"(?<!\w)([A-Z_][A-Z0-9_]{2,})(=)('[^'\n]*'|\"[^\"\n]*\"|[^\s,;)'\"]+)"
)
_SECRET = re.compile(
    r"(?i)((?:password|passwd|secret|token|api[_-]?key|access[_-]?key|credentials?"
    r"|serial(?: ?(?:number|no\.?))?)[\"']?\s*[=:]\s*|\bbearer\s+|\bserial (?:number )?(?=[\w-]*\d))"
    r"(\"[^\"\n]*\"|'[^'\n]*'|[^\s,;)]+)"
)
#: Hosts' keys of services: Hugging Face, GitHub, OpenAI, AWS, Slack, PyPI; JSON web tokens.
_TOKEN = re.compile(
    r"(?<!\w)(?:hf_|gh[pousr]_|github_pat_|sk-|xox[a-z]-|pypi-|glpat-|AKIA|eyJ)[\w.-]{8,}"
)
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (_TOKEN, "<secret>"),
    (re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "<address>"),
    (
        re.compile(
            r"(?i)(?<![0-9a-f])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f])"
        ),
        "<uuid>",
    ),
    (
        re.compile(
            r"(?<![\w])([A-Z]{2,5})-(?=[0-9a-f-]*\d)[0-9a-f][0-9a-f-]{5,}(?![\w])"
        ),
        r"\1-<uuid>",
    ),
    (
        re.compile(
            r"(?i)(?<![0-9a-f:])[0-9a-f]{2}(?:[:-][0-9a-f]{2}){5,19}(?![0-9a-f:])"
        ),
        "<mac>",
    ),
    (
        re.compile(r"(?i)(?<![0-9a-f.])[0-9a-f]{4}(?:\.[0-9a-f]{4}){2}(?![0-9a-f.])"),
        "<mac>",
    ),
    (
        re.compile(r"(?i)(?<![0-9a-z])(?:0x)?(?=[a-f]*\d)[0-9a-f]{24,}(?![0-9a-z])"),
        "<id>",
    ),
)
#: Numbers of four parts that are versions: NVIDIA's libraries have them, `cuDNN 9.10.2.21`.
_FOUR_PARTS = r"\d{1,3}(?:\.\d{1,3}){3}"
_LIBRARY = (
    r"nvidia-[\w-]+|cuda|cudnn|cublas|cufft|curand|cusolver|cusparse|cusparselt|nccl|tensorrt|rocm|miopen|rccl"
    r"|cann|hccl|oneapi|oneccl|mkl|torch"
)
_VERSION = re.compile(
    rf"(?i)(?<![\w.-])(?:(?:{_LIBRARY}|version|release|(?:built|compiled|linked) (?:with|against|for)) |v)"
    rf"{_FOUR_PARTS}(?!\d|[.:/]\d)"
)
#: What comes behind a word for a machine, if it is no word of everyday English.
_HOST = re.compile(
    r"(?i)(\(host |\b(?:host|hostname|node|server|peer)(?:[=:] ?| ))(['\"\[]?)"
    r"(?!<)([\w-]+(?:\.[\w-]+)*)"
)
_NUMBERED_HOST = re.compile(
    r"(?i)(?<![\w.-])(?:[a-z][\w-]*-)?(?:node|host|nid|dgx|worker)-?\d+(?![\w.-]*\w)"
)
_MODULE = re.compile(
    r"(?i)\b((?:(?:module|package)(?: named)?|from|import) ['\"`])([\w.]+)(?=['\"`])"
)
#: Words with dots inside: modules, hosts, files, versions.
_DOTTED = re.compile(r"(?<![\w.\ue000-\uf8ff-])[A-Za-z_][\w-]*(?:\.[\w-]+)+")
#: Modules that may be named although they are not installed: Python's, ours, torch's, and vendors'.
_PUBLIC_MODULES = re.compile(
    r"(?:accel|torch|triton|deepspeed|nvidia|habana_frameworks|intel_extension|oneccl|libtpu|jax|bitsandbytes)\w*"
    r"|Backend|acl|tbe|te|hccl|numpy|setuptools|pip|lightning|accelerate|transformers|ray"
)
#: Topics of the doctor, with which the codes of its findings begin: `machine.no-plugin`.
_TOPICS = (
    "candidates", "machine", "visible-devices", "at-import", "patched", "privateuse1", "others", "checks",
)  # fmt: skip
#: Files that next steps name.
_SCRIPTS = ("set_env.sh", "setvars.sh")
_IPV4 = re.compile(
    r"(?<![\d.])(?<!so\.)(?<![=~<>]=)\d{1,3}(?:\.\d{1,3}){3}(?![\d.]*\d)"
)
_IPV6 = re.compile(r"(?i)(?<![\w:])[0-9a-f:]*:[0-9a-f:]*:[0-9a-f:.]*(?:%\w+)?(?![\w:])")
#: Names of facts whose values name one machine.
_TELLING = re.compile(
    r"(?i)serial|uuid|host ?name|^host$|^user$|user ?name|mac address|token|passw|secret"
)


class Redactor:
    """Removes from texts what `identity` names, and what looks like a name or a secret."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        table: dict[str, str] = {}
        for path, mark in identity.folders:
            if path in _ABOVE or (mark == PATH and _SYSTEM.fullmatch(path)):
                continue
            for form in _forms(path.rstrip("/\\")):
                table.setdefault(form.casefold(), _MARKS[mark])
        for text, mark in identity.names:
            for form in _forms(text):
                table.setdefault(form.casefold(), mark)
        self._table = table
        words = sorted(table, key=len, reverse=True)
        self._known = re.compile(
            "|".join(map(_bounded, words)) or r"(?!)", re.IGNORECASE
        )

    def of(self, value: T) -> T:
        """Return a copy of a record, mapping or list in which every text is redacted, at any depth.

        A value in a mapping under the name of an environment variable is kept if `identity`'s table allows
        it.
        """
        made: Any = value
        if isinstance(value, enum.Enum):
            return value
        if isinstance(value, str):
            made = self.text(value)
        elif isinstance(value, Mapping):
            made = {
                self.text(str(key)): self._named(str(key), item)
                for key, item in value.items()
            }
        elif is_dataclass(value) and not isinstance(value, type):
            made = replace(
                made, **{f.name: self.of(getattr(value, f.name)) for f in fields(value)}
            )
        elif isinstance(value, tuple) and hasattr(value, "_make"):
            made = value._make(map(self.of, value))
        elif isinstance(value, (list, tuple)):
            made = type(value)(map(self.of, value))
        return made  # type: ignore[no-any-return]

    def _named(self, name: str, value: object) -> object:
        if isinstance(value, str) and value:
            if self._is_variable(name) and not may_be_told(name, value):
                return "set"
            if _TELLING.search(name):
                return "<private>"
            if re.fullmatch(_LIBRARY, name, re.IGNORECASE) and re.fullmatch(
                _FOUR_PARTS, value
            ):
                return value
        return self.of(value)

    def _is_variable(self, name: str) -> bool:
        return (
            name in self._identity.environ
            or re.fullmatch(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+", name) is not None
        )

    def text(self, text: str) -> str:
        """Return `text` with marks in place of identifying parts."""
        if len(text) > _LONGEST:
            text = f"{text[:_LONGEST]} … (cut)"
        settled: list[str] = []

        def settle(kept: str) -> str:
            settled.append(kept)
            return (
                chr(_KEPT + len(settled) - 1) if len(settled) <= 0xF8FF - _KEPT else ""
            )

        text = _PRIVATE.sub("\ufffd", unicodedata.normalize("NFC", text))
        text = _ENCODED.sub(lambda found: self._decoded(found[0], settle), text)
        text = self._known.sub(lambda found: self._known_mark(found[0], settle), text)
        text = _ADDRESS.sub(lambda found: _address(found[0], settle), text)
        text = _ASSIGNED.sub(_assigned, text)
        text = _SECRET.sub(lambda found: f"{found[1]}<secret>", text)
        text = _QUOTED.sub(
            lambda found: settle(f"{found[1]}{self._path(found[2])}{found[1]}"), text
        )
        text = _WINDOWS.sub(lambda found: settle(self._path(found[0])), text)
        text = self._posix(text, settle)
        text = _RELATIVE.sub(lambda found: settle(self._relative(found[0])), text)
        for pattern, mark in _PATTERNS:
            text = pattern.sub(mark, text)
        text = _VERSION.sub(lambda found: settle(found[0]), text)
        text = _IPV4.sub(lambda found: _internet(found[0]), text)
        text = _IPV6.sub(lambda found: _internet(found[0]), text)
        text = _HOST.sub(self._host, text)
        text = _MODULE.sub(lambda found: f"{found[1]}{self._module(found[2])}", text)
        text = _DOTTED.sub(lambda found: self._dotted(found[0]), text)
        text = _NUMBERED_HOST.sub("<host>", text)
        while any(_KEPT <= ord(c) < _KEPT + len(settled) for c in text):
            text = _PRIVATE.sub(
                lambda c: settled[ord(c[0]) - _KEPT] if ord(c[0]) >= _KEPT else c[0],
                text,
            )
        for mark, sign in _MARKS.items():
            text = text.replace(sign, mark)
        return text

    def _host(self, found: re.Match[str]) -> str:
        """A host behind a word such as "node"; English words and numbers follow that too: "host memory"."""
        before, quote_mark, name = found.groups()
        if name.isdecimal():
            return found[0]
        is_marked = (
            before.startswith("(")
            or before.endswith(("=", ":"))
            or quote_mark in ("'", '"')
        )
        is_english = name.isalpha() and not is_marked
        return found[0] if is_english else f"{before}{quote_mark}<host>"

    def _module(self, name: str) -> str:
        return name if self._is_public_module(name) else "<module>"

    def _is_public_module(self, name: str) -> bool:
        top = name.partition(".")[0]
        if top in self._identity.packages or top in sys.stdlib_module_names:
            return True
        return _PUBLIC_MODULES.fullmatch(top) is not None

    def _dotted(self, name: str) -> str:
        """A word with dots: kept if it names something public, or a version, as `rocm6.4.1` does."""
        _, *others = name.split(".")
        is_version = all(part[:1].isdigit() for part in others)
        if is_version or is_public(name.lower()) or self._is_public_module(name):
            return name
        if (
            name in _SCRIPTS
            or name.partition(".")[0] in _TOPICS
            or _SHARED_LIBRARY.fullmatch(name)
        ):
            return name
        return "<name>"

    def _known_mark(self, known: str, settle: Callable[[str], str]) -> str:
        """A folder's mark, from which a path goes on; any other is settled."""
        mark = self._table[known.casefold()]
        return mark if mark in _MARKS.values() else settle(mark)

    def _decoded(self, word: str, settle: Callable[[str], str]) -> str:
        """A word with per cent signs as it is where its plain form names nobody, else that form redacted."""
        plain = word
        while (decoded := unquote(plain)) != plain:  # it gets shorter each time
            plain = decoded
        if plain == word:
            return word
        told = self.text(plain)
        return word if told == plain else settle(told)

    def _posix(self, text: str, settle: Callable[[str], str]) -> str:
        def settled(found: re.Match[str]) -> str:
            first, space, more = found[0].partition(" ")
            if space and _SYSTEM.fullmatch(
                first
            ):  # no folder of the system has a space in its name
                return f"{settle(first)} {self._posix(more, settle)}"
            return settle(self._path(found[0]))

        return _POSIX.sub(settled, text)

    def _path(self, path: str) -> str:
        """Return what may be shown of a path: all in an environment or the system, else a library's name."""
        end = path.rstrip(".,:;)]}!?")
        tail = path[len(end) :]
        first, *others = _split(end)
        told = self._one_path(first)
        for other in others:  # a line's number, or the entries of a search path
            told += f":{self._one_path(other) if '/' in other else other}"
        return told + tail

    def _one_path(self, path: str) -> str:
        parts = [part for part in re.split(r"[\\/]+", path) if part]
        if ".." not in parts and (
            path.startswith(_MARKS[ENVIRONMENT]) or _SYSTEM.fullmatch(path)
        ):
            return path
        mark = PATH
        if parts and (parts[0].startswith("~") or parts[0][0] in _MARKS.values()):
            mark = _MARKS[HOME] if parts[0] in ("~", _MARKS[HOME]) else PATH
            parts = parts[1:]
            if not parts:
                return mark
        elif not parts:
            return path  # a slash by itself
        last = parts[-1]
        if _SHARED_LIBRARY.fullmatch(last):
            return f"{mark}/{last}"
        return mark if mark == PATH else f"{mark}/…"

    def _relative(self, path: str) -> str:
        """A path that does not begin at a root: of a package, or of somebody's work; or only words."""
        parts = re.split(r"[\\/]+", path)
        is_file = "." in parts[-1][1:] or path.startswith(".") or _PRIVATE.search(path)
        if parts[0] in self._identity.packages or not is_file:
            return _IPV4.sub(
                lambda found: _internet(found[0]), path
            )  # of a network: 10.0.0.0/8
        return f"{PATH}/{parts[-1]}" if _SHARED_LIBRARY.fullmatch(parts[-1]) else PATH


def _forms(text: str) -> Iterator[str]:
    """`text`, and as messages quote it: escaped, encoded, with the other slashes."""
    composed = unicodedata.normalize("NFC", text)
    for form in (composed, composed.replace("\\", "/")):
        yield form
        yield repr(form)[1:-1]
        yield ascii(form)[1:-1]
        yield json.dumps(form)[1:-1]
        yield html.escape(form)
        yield from (quote(form), quote(form, safe=""), quote_plus(form))


def _bounded(word: str) -> str:
    """A pattern for the word: a short one, which other words may hold, only between what is no letter."""
    found = re.escape(word)
    if len(word) >= 10 and not word.startswith(("/", "\\")):
        return found
    before = r"(?<![A-Za-z0-9])" if word[:1].isalnum() else ""
    after = r"(?![A-Za-z0-9])" if word[-1:].isalnum() else ""
    return f"{before}{found}{after}"


def _split(path: str) -> list[str]:
    """At colons, but not behind a drive's letter."""
    drive = path[:2] if re.match(r"[A-Za-z]:[\\/]", path) else ""
    first, *others = path[len(drive) :].split(":")
    return [drive + first, *others]


def _address(address: str, settle: Callable[[str], str]) -> str:
    end = address.rstrip(".,:;)]}!?")
    tail = address[len(end) :]
    try:
        parts = urlsplit(end)
        host = parts.hostname or ""
    except ValueError:
        return f"<url>{tail}"
    if parts.scheme.lower() == "file":
        return f"file: {end.partition('://')[2]}{tail}"
    if is_public(host) and "@" not in parts.netloc and not parts.query:
        return settle(end) + tail
    return settle(f"{parts.scheme}://<host>") + tail


def _assigned(found: re.Match[str]) -> str:
    name, equals, value = found.groups()
    return found[0] if may_be_told(name, value.strip("'\"")) else f"{name}{equals}<set>"


def _internet(text: str) -> str:
    """A mark in the place of an internet address, else what it was: a version, an hour, a C++ name."""
    try:
        ipaddress.ip_address(text.partition("%")[0].rstrip("."))
    except ValueError:
        return text
    return "<ip>" if any(c.isdigit() for c in text) else text
