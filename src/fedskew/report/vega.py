"""Vega, Vega-Lite and Vega-Embed as one script, from what vl-convert carries with it: no page asks another host."""

from __future__ import annotations

from functools import cache

import vl_convert


@cache
def script() -> str:
    """It gives a page `vegaEmbed`; it may stand in a file or between script tags."""
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # Only these two could end or hide a script element; in JavaScript strings the escape is the same text.
    return "(() => {" + bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--") + "\n})();"
