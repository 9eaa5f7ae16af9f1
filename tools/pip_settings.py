"""What pip is configured with, in uv's words: uv reads no configuration of pip's."""

from __future__ import annotations

import ast

# pip's settings and uv's variables for them; the parts of a value are joined by the last character.
_VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "constraint": ("UV_CONSTRAINT", " "),
    "cert": ("SSL_CERT_FILE", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
    "default-timeout": ("UV_HTTP_TIMEOUT", " "),
}
# These change nothing of what is installed.
_NO_MATTER = {
    "break-system-packages", "cache-dir", "config-file", "disable-pip-version-check", "no-color",
    "no-compile", "no-input", "no-python-version-warning", "no-warn-script-location", "progress-bar",
    "quiet", "require-virtualenv", "retries", "root-user-action", "verbose",
}  # fmt: skip


def in_uvs_words(listed: str) -> dict[str, str] | None:
    """Give uv's variables for what `pip config list` printed; None where uv has no word for a setting."""
    # pip's order: what is in the environment overrides what is in files.
    lines = sorted(
        filter(None, listed.splitlines()), key=lambda line: line.startswith(":env:")
    )
    # pip takes the best version of all indexes, wherever it is.
    found = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for line in lines:
        name, _, value = line.partition("=")
        section, _, setting = name.removeprefix(":env:").rpartition(".")
        if section not in ("", "global", "install") or setting in _NO_MATTER:
            continue
        if setting not in _VARIABLES:
            return None
        variable, joint = _VARIABLES[setting]
        found[variable] = joint.join(ast.literal_eval(value).split())
    return found
