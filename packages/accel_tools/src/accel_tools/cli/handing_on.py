"""Redacted output of `accel doctor` for other people: `--issue`, `--bundle FILE` and `--html FILE`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from accel_core.cli import page
from accel_tools.doctor.outgoing import Outgoing, Ranked
from accel_tools.doctor.records import Report, Visit

__all__ = ["Outlets", "outlets"]

#: The width of the page of `--html`.
_HTML_COLUMNS = 100

F = TypeVar("F", bound=Callable[..., Any])


class Outlets(NamedTuple):
    """Destinations of the output of a visit, other than the terminal."""

    issue: bool
    bundle: str | None
    html: str | None
    force: bool

    def check(self, *, as_json: bool) -> None:
        """Raise `click.UsageError` for options that exclude each other."""
        if self.issue and as_json:
            raise click.UsageError(
                "--issue and --json both write to stdout: give one of them."
            )
        if self.bundle is not None and self.bundle == self.html:
            raise click.UsageError(
                f"--bundle and --html are two files, and both name {self.html}."
            )

    def log(self) -> contextlib.AbstractContextManager[list[str]]:
        """Return a context manager that records the log if a bundle needs it."""
        if self.bundle is None:
            return contextlib.nullcontext([])
        from accel_tools.doctor.bundle import recorded

        return recorded()

    def write(
        self,
        visit: Visit,
        report: Report,
        log: list[str],
        in_terminal: Callable[[Report], list[page.Part]],
    ) -> str:
        """Write the files of `--bundle` and `--html`, and return the Markdown of `--issue` (else empty).

        `in_terminal(report)` returns the parts that the terminal shows; the HTML page has the same. Raises
        `click.ClickException` for a file that exists already without `--force`, or cannot be written.
        """
        if not (self.issue or self.bundle or self.html):
            return ""
        # Here, as most visits go nowhere.
        from accel_tools.doctor import bundle, markdown
        from accel_tools.doctor.identity import Identity
        from accel_tools.doctor.outgoing import outgoing
        from accel_tools.doctor.redact import Redactor

        redactor = Redactor(Identity.here(visit.environ))
        made = outgoing(visit, report, redactor)
        if self.bundle:
            self._file("--bundle", self.bundle, bundle.bundle(made, log, redactor))
        if self.html:
            parts = [*in_terminal(made.report), *_besides(made)]
            self._file(
                "--html", self.html, _html(parts).encode("utf-8", "xmlcharrefreplace")
            )
        return markdown.markdown(made).rstrip("\n") if self.issue else ""

    def _file(self, option: str, path: str, data: bytes) -> None:
        from accel_tools.doctor.bundle import write

        try:
            write(path, data, force=self.force)
        except FileExistsError:
            raise click.ClickException(
                f"{option} {path}: it exists already. Give another name, or --force to replace it."
            ) from None
        except OSError as error:
            raise click.ClickException(
                f"{option} {path}: it cannot be written: {error.strerror}"
            ) from None
        click.echo(
            f"{path} is written. Names of people, hosts and folders were removed; check it before sending."
        )


def _html(parts: list[page.Part], columns: int = _HTML_COLUMNS) -> str:
    """The page in HTML, in the colours of a terminal."""
    import io

    from rich.console import Console
    from rich.text import Text

    console = Console(
        file=io.StringIO(), width=columns, record=True, force_terminal=True
    )
    console.print(Text.from_ansi(page.to_text(parts, columns, in_colour=True)))
    return console.export_html(inline_styles=True)


def _besides(made: Outgoing) -> list[page.Part]:
    """Return what the page of `--html` has beside the report."""
    ranking = page.table(
        ("Backend", "From", "Priority", "Verdict"), [*map(_row, made.ranking)]
    )
    parts: list[page.Part] = [page.heading("Ranking"), ranking] if made.ranking else []
    parts += [page.heading("Versions"), page.facts(made.versions.items())]
    if made.variables:
        parts += [
            page.heading("Environment variables"),
            page.facts(made.variables.items()),
        ]
    foot = "Names of people, hosts and folders, and the values of other variables, were removed."
    return [*parts, page.paragraph(), page.paragraph((foot, "dim"))]


def _row(ranked: Ranked) -> list[tuple[str, str]]:
    style = "green" if ranked.usable else "yellow" if ranked.failed else ""
    return [
        (ranked.name, "bold" if ranked.chosen else ""),
        (ranked.distribution, ""),
        (str(ranked.priority), ""),
        (ranked.status + (", chosen" if ranked.chosen else ""), style),
    ]


def outlets(command: F) -> F:
    """Add `--issue`, `--bundle`, `--html` and `--force`; the command gets them as `outlets`."""

    @functools.wraps(command)
    def gathered(
        *args: Any,
        issue: bool,
        bundle_file: str | None,
        html_file: str | None,
        force: bool,
        **more: Any,
    ) -> Any:
        return command(
            *args, outlets=Outlets(issue, bundle_file, html_file, force), **more
        )

    made: Any = gathered
    for option in (
        click.option("--force", is_flag=True, help="Replace FILE if it exists."),
        click.option(
            "--html", "html_file", metavar="FILE", type=click.Path(), help="Write an HTML page, redacted."
        ),
        click.option(
            "--bundle", "bundle_file", metavar="FILE", type=click.Path(),
            help="Write a zip to send: report, installed packages and log, redacted.",
        ),
        click.option("--issue", is_flag=True, help="Print Markdown for a bug report, redacted."),
    ):  # fmt: skip
        made = option(made)
    return made  # type: ignore[no-any-return]
