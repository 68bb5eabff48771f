"""Put the page of a finished benchmark among the results of the documentation.

    python tools/publish_results.py OUT TRACK --to docs/results [--note "what else a reader should know"]

OUT is the folder of ``pirate benchmark TRACK --out OUT``. TRACK.md goes to the folder given, its pictures to a folder
of their own beside it, with the latest row of every pair; pictures of an earlier page that this one does not show are
removed.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

ROWS = "rows.csv"
PICTURE = re.compile(r"\(<figures/([\w.-]+\.png)>\)")


def publish(out: Path, track: str, to: Path, notes: Sequence[str] = ()) -> Path:
    """Copy page, pictures and rows; `notes` come behind its first paragraph."""
    text = (out / f"{track}.md").read_text(encoding="utf-8")
    shown = set(PICTURE.findall(text))
    missing = sorted(name for name in shown if not (out / "figures" / name).is_file())
    if missing:
        raise SystemExit(f"{out}: the page shows {', '.join(missing)}, which are not there. Run it again.")
    title, first, rest = text.split("\n\n", 2)
    text = "\n\n".join([title, first, *notes, rest])
    folder = to / track
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.png"):
        if old.name not in shown:
            old.unlink()
    for name in sorted(shown):
        shutil.copyfile(out / "figures" / name, folder / name)
    (folder / ROWS).write_text(_latest((out / ROWS).read_text(encoding="utf-8")), encoding="utf-8")
    page = to / f"{track}.md"
    page.write_text(PICTURE.sub(rf"(<{track}/\1>)", text), encoding="utf-8")
    return page


def _latest(rows: str) -> str:
    """Of a method that was run on a pair more than once, the last row, which the page has; `rows` is a CSV."""
    latest = {tuple(row[:2]): row for row in csv.reader(io.StringIO(rows))}
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(latest.values())
    return text.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("track")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--note", action="append", default=[])
    given = parser.parse_args()
    print(publish(given.out, given.track, given.to, given.note))


if __name__ == "__main__":
    main()
