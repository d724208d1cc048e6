"""HTML from the templates in a folder: every value is escaped, unless it is HTML already (`Markup`)."""

from __future__ import annotations

import base64
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).with_name("templates")


def render(template: str, /, *, folder: Path = TEMPLATES, **values: Any) -> Markup:
    """Fill in a template; what comes out is HTML, which other templates do not escape again."""
    return Markup(_environment(folder).get_template(template).render(values))


def render_table(
    caption: str, head: Sequence[str], rows: Sequence[Any], /, *, template: str = "table.html", **values: Any
) -> Markup:
    """Render a table that scrolls inside its own box; without rows there is none."""
    return render(f"tables/{template}", caption=caption, head=head, rows=rows, **values) if rows else Markup()


def render_picture(png: bytes, said: str, *, alt: str | None = None) -> Markup:
    """Render a picture inside the page, with a caption that also stands for it where it can't be seen."""
    return render("picture.html", address=png_address(png), said=said, alt=alt or said)


def png_address(png: bytes) -> str:
    """Return a PNG as a data: address, so that a page needs no other file."""
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


@functools.cache
def _environment(folder: Path) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # not before a page is written

    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
