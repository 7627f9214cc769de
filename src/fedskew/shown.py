"""What a notebook shows of a run, of a store and of rows: the drawing is found when something is shown."""

from __future__ import annotations

from importlib import import_module


class Shown:
    """Shown in a notebook as `fedskew.report.notebook` has it.

    That room stands above those whose things it shows, so it is looked up by its name, as `fedskew.Run` is by its own,
    and neither altair nor vl-convert is loaded before something is shown.
    """

    def _repr_html_(self) -> str:
        html: str = import_module("fedskew.report.notebook").html(self)
        return html
