"""Print how long each module is, ask about long ones, and fail where one is longer than a reader can hold."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Where to ask whether a file still has one meaning, and where the answer is no.
ASK, LIMIT = 400, 500


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
    for path, lines in counts.items():
        if ASK < lines <= LIMIT:
            print(f"has it one meaning? {path.as_posix()} has {lines} lines, more than {ASK}")
    long = [path for path, lines in counts.items() if lines > LIMIT]
    for path in long:
        print(f"too long: {path.as_posix()} has {counts[path]} lines, more than {LIMIT}")
    return 1 if long else 0


if __name__ == "__main__":
    raise SystemExit(main())
