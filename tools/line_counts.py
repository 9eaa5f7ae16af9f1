"""Print how long each module is, and fail if one has grown past what a reader holds in mind."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 400


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    # Outside a checkout (an unpacked sdist) there is no git to ask.
    names = listed.stdout.splitlines() or [str(p.relative_to(ROOT)) for p in (ROOT / "src").rglob("*.py")]
    counts = {}
    for name in sorted(set(names)):
        path = ROOT / name
        if path.is_file():
            counts[Path(name)] = len(path.read_text(encoding="utf-8").splitlines())
    code = {path: lines for path, lines in counts.items() if "src" in path.parts}
    for path, lines in code.items():
        print(f"{lines:5}  {path.as_posix()}")
    rest = sum(counts.values()) - sum(code.values())
    print(f"{sum(code.values()):5}  lines in {len(code)} modules; {rest} more in tests, benchmarks and tools")
    long = [path for path, lines in counts.items() if lines > LIMIT]
    for path in long:
        print(f"too long: {path.as_posix()} has {counts[path]} lines, more than {LIMIT}")
    return 1 if long else 0


if __name__ == "__main__":
    raise SystemExit(main())
