"""Fill the tables of docs/papers/hsu2019.md from results/hsu2019: python scripts/hsu2019.py"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from fedskew.papers import hsu2019_exhibits
from fedskew.report.tables import Table

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "papers" / "hsu2019.md"
RESULTS = ROOT / "results" / "hsu2019"
CAPTIONS = {"figure6": hsu2019_exhibits.EVERY_PAIR}


def found(name: str) -> list[dict[str, Any]]:
    """The cells of an exhibit that were trained."""
    path = RESULTS / f"{name}.json"
    records: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return [r for r in records if r["accuracy"] is not None]


def text(name: str) -> str:
    """An exhibit's table, and its figures where they were drawn."""
    records = found(name)
    if not records:
        return "Not run at full scale yet.\n"
    if name == "figure6":  # forty-eight pairs are a picture
        records = sorted(records, key=lambda r: -r["accuracy"])[:5]
    shown: Table = (
        hsu2019_exhibits.remedies_table(records)
        if name == "tableremedies"
        else hsu2019_exhibits.table(name, records, CAPTIONS.get(name, hsu2019_exhibits.CAPTION))
    )
    pictures = re.findall(rf"!\[(.+?)\]\(({name}\S*\.svg)\)", (RESULTS / "README.md").read_text())
    drawn = [f"\n{panel}:\n\n![{panel}](../../results/hsu2019/{file})\n" for panel, file in pictures]
    return shown.markdown() + "".join(drawn)


def main() -> None:
    """Put each table between its two marks."""
    page = PAGE.read_text()
    for name in re.findall(r"<!-- (\w+) -->", page):
        between = rf"<!-- {name} -->\n.*?<!-- /{name} -->"
        filled = f"<!-- {name} -->\n{text(name)}<!-- /{name} -->"
        page = re.sub(between, lambda _, filled=filled: filled, page, flags=re.DOTALL)  # type: ignore[misc]
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
