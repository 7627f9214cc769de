"""Charts and pages as files; the ending of the name chooses the form."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import altair as alt
import vl_convert

from fedskew.errors import FedskewError
from fedskew.report import theme
from fedskew.report.page import Figure, Section, render

ENDINGS = (".svg", ".png", ".html")


def check_ending(path: Path, endings: tuple[str, ...] = ENDINGS) -> None:
    """Refuse a name that does not say what to write, before anything is computed."""
    if path.suffix.lower() not in endings:
        raise FedskewError(f"cannot write {str(path)!r}: the name must end in {', '.join(endings)}")


def save(chart: alt.TopLevelMixin, path: Path | str, *, title: str = "fedskew") -> Path:
    """The chart as .svg, .png or a self-contained interactive .html."""
    path = Path(path)
    check_ending(path)
    match path.suffix.lower():
        case ".svg":
            return write(path, vl_convert.vegalite_to_svg(theme.spec(chart)))
        case ".png":
            return write(path, vl_convert.vegalite_to_png(theme.spec(chart), scale=2))
        case _:
            return write(path, render(title, [Section("", figures=[Figure(chart)])]))


def write(path: Path, content: str | bytes) -> Path:
    """The content under that name, folders made; a half-written file never stands there."""
    data = content.encode() if isinstance(content, str) else content
    fresh = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_bytes(data)
        fresh.replace(path)
    except OSError as e:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise FedskewError(f"cannot write {str(path)!r}: {e.strerror or e}; choose another place") from None
    return path
