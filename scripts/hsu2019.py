"""Fill docs/papers/hsu2019.md from results/hsu2019/README.md: python scripts/hsu2019.py

Between <!-- figure5 --> and <!-- /figure5 --> comes what stands there under "Figure 5: ..."; <!-- figure6 pictures -->
asks for its pictures alone.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "papers" / "hsu2019.md"
RESULTS = ROOT / "results" / "hsu2019" / "README.md"


def sections() -> dict[str, str]:
    """What was reproduced, under the first words of its heading: figure5, pastthepaper."""
    _, *parts = RESULTS.read_text().split("\n## ")
    titled = [part.split("\n", 1) for part in parts]
    return {title.split(":")[0].lower().replace(" ", ""): body.strip() for title, body in titled}


def shown(body: str, pictures: bool) -> str:
    """As the page has it: every picture under its name, and with `pictures` nothing but these."""
    blocks = [block for block in body.split("\n\n") if block.startswith("![") or not pictures]
    return re.sub(r"!\[(.+?)\]\((.+?)\)", r"*\1*\n\n![\1](../../results/hsu2019/\2)", "\n\n".join(blocks))


def main() -> None:
    """Put each exhibit between its two marks."""
    page, found = PAGE.read_text(), sections()
    for name, pictures in re.findall(r"<!-- (\w+)( pictures)? -->", page):
        filled = f"<!-- {name}{pictures} -->\n{shown(found[name], bool(pictures))}\n<!-- /{name} -->"
        between = rf"<!-- {name}{pictures} -->\n.*?<!-- /{name} -->"
        page = re.sub(between, lambda _, filled=filled: filled, page, flags=re.DOTALL)  # type: ignore[misc]
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
