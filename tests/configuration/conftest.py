"""A machine of folders, each the place of one level's configuration file."""

from __future__ import annotations

from pathlib import Path

import pytest

from accel_core import configuration
from accel_core.settings import Settings, handed_on, read


class Levels:
    """A machine of folders: each level has its file's place, and the process works in a project."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = root / "home"
        self.project = self.home / "work" / "project"
        self.files = {
            "site": root / "etc" / "accel.toml",
            "environment": root / "prefix" / "etc" / "accel" / "accel.toml",
            "user": self.home / ".config" / "accel" / "accel.toml",
            "project": self.project / "accel.toml",
        }
        for file in self.files.values():
            file.parent.mkdir(parents=True, exist_ok=True)
        sites = [(level, str(self.files[level])) for level in ("site", "environment")]
        monkeypatch.setattr(configuration, "site_files", lambda environ: iter(sites))
        monkeypatch.setattr(configuration, "user_file", lambda environ: str(self.files["user"]))
        monkeypatch.chdir(self.project)
        self.environ = {"HOME": str(self.home), "USERPROFILE": str(self.home)}

    def write(self, level: str, text: str) -> Path:
        self.files[level].write_text(text, encoding="utf-8")
        return self.files[level]

    def read(self, **environ: str) -> Settings:
        return read({**self.environ, **environ})

    def handed_on(self, **environ: str) -> dict[str, str]:
        return handed_on({**self.environ, **environ})


@pytest.fixture
def levels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Levels:
    return Levels(tmp_path, monkeypatch)
