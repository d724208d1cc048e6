"""The output of `saccade look`: in the terminal, as pictures, as one page, as JSON."""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, final

import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text
from torch import Tensor

from saccade.errors import UserError
from saccade.inspection.draw import caption, grid, heatmap
from saccade.inspection.insight import Insight, Map, merge_pieces
from saccade.inspection.pages import viewer
from saccade.inspection.views import heads as head_statistics
from saccade.inspection.views.heads import HeadWeights
from saccade.inspection.views.view import THROUGH_LAYERS, ViewChoice, is_through, kind_of, with_views

PLACE = "layer head"


class AttentionMap(NamedTuple):
    """The map that was asked for; its weights [T, S] by words or pieces, their names, and the weight of full colour.

    What is spread thin gets the full colour at its greatest.
    """

    map: Map
    weight_TS: Tensor
    names: dict[str, Any]


@final
@dataclass(frozen=True)
class LookOutput:
    """A view, by words or by pieces, for people or for programs, with a picture or without; of one text or several."""

    view: ViewChoice
    pieces: bool
    picture: Path | None
    as_json: bool
    is_one: bool
    console: Console = field(default_factory=Console)

    @property
    def is_page(self) -> bool:
        """Return True if one HTML page is to hold everything."""
        return self.picture is not None and self.picture.suffix == ".html"

    def each(self, found: Iterator[Insight]) -> None:
        for number, seen in enumerate(found, 1):
            drawn = None if _is_blank(seen) or self._draws_itself(seen) else self._choose(seen)
            self._say(seen, drawn)
            if self.picture is not None and not _is_blank(seen):
                self._draw(seen, drawn, self._path(number))

    def heads(self, found: Iterator[Insight]) -> None:
        """Print a table of what each head does, over all texts; as a picture, a grid of them all for each text."""
        rows = head_statistics.rows(head_statistics.table(self._head_weights(found)))
        if not rows:
            raise UserError("text: all are blank; there is nothing to look at")
        if self.as_json:
            _print_json({"heads": rows})
        else:
            self.console.print(_table(rows, self.console))

    def page(self, found: Iterator[Insight], *, title: str) -> None:
        """Write all texts into one file, which opens at what was asked for."""
        assert self.picture is not None
        shown, pictures = [], []
        for seen in found:
            if not _is_blank(seen):
                if seen.draws_itself and not seen.maps:
                    raise UserError(f"{self.picture}: without weights there is no page; allowed: .png, .gif")
                whole = self._with_layers(seen)
                if self.view.name not in whole.views:
                    self.view.of(seen)  # refuses what is not there
                shown.append(whole.plain())
                pictures.append(None if seen.picture is None else caption.encode_picture(seen.picture))
            self._say(seen, None)
        if not shown:
            raise UserError("text: all are blank; there is nothing to look at")
        opening = {"byWords": not self.pieces, **self.view._asdict()}
        start = {name: value for name, value in opening.items() if value is not None}
        viewer.write(self.picture, shown, title=title, start=start, pictures=pictures)

    def _draws_itself(self, seen: Insight) -> bool:
        """Return True if an answer draws itself: it can, and no view of weights between words is asked for."""
        if not seen.draws_itself or not seen.maps or self.view == ViewChoice():
            return seen.draws_itself
        return self.view.of(seen).shape is not None

    def _say(self, seen: Insight, drawn: AttentionMap | None) -> None:
        """Print the answer, and where no page holds them the weights."""
        if self.as_json:
            _print_json(self._select_shown(seen, drawn).plain())
            return
        self.console.print(
            heatmap.make_printable(seen.answer.line(), self.console.encoding), highlight=False, markup=False
        )
        if drawn is not None:
            self.console.print(heatmap.in_terminal(drawn.weight_TS, console=self.console, **drawn.names))
        elif not self.is_page:
            seen.answer.show(self.console)
        for note in seen.notes:
            self.console.print(heatmap.make_printable(note, self.console.encoding), highlight=False, markup=False)

    def _select_shown(self, seen: Insight, drawn: AttentionMap | None) -> Insight:
        """Select what was asked for: through the layers more was recorded."""
        if drawn is None or self.view.name not in THROUGH_LAYERS:
            return seen
        kind = kind_of(seen, self.view.kind)
        return replace(seen, maps={kind: seen.maps[kind]}, views={self.view.name: drawn.map})

    def _with_layers(self, seen: Insight) -> Insight:
        """Add rollout, where it can be had, and flow, where it is asked for."""
        kind = kind_of(seen, self.view.kind)
        names = {"rollout", self.view.name} & set(THROUGH_LAYERS)
        return with_views(seen, sorted(names), kind) if is_through(seen, kind) else seen

    def _head_weights(self, found: Iterator[Insight]) -> Iterator[HeadWeights]:
        for number, seen in enumerate(found, 1):
            if _is_blank(seen):
                continue
            kind = kind_of(seen, self.view.kind)
            if self.picture is not None:
                self._draw_grid(seen, kind, self._path(number))
            yield HeadWeights.of(seen, kind)

    def _draw(self, seen: Insight, drawn: AttentionMap | None, path: Path) -> None:
        if drawn is None:
            seen.answer.draw(path)
        else:
            heatmap.to_file(drawn.weight_TS, path, title=seen.answer.line(), **drawn.names)

    def _choose(self, seen: Insight) -> AttentionMap:
        found = self.view.of(seen)
        weight_LHTS, queries, keys = _name_axes(seen, found, self.pieces)
        most = float(weight_LHTS.max()) if self.view.name in THROUGH_LAYERS else 1.0
        return AttentionMap(found, weight_LHTS[0, 0], {"queries": queries, "keys": keys, "most": most})

    def _draw_grid(self, seen: Insight, kind: str, path: Path) -> None:
        weight_LHTS, queries, keys = _name_axes(seen, seen.maps[kind], self.pieces)
        head = seen.aligning if kind == "cross" else None
        marked = None if head is None or head.head is None else (head.layer, head.head)
        names = {"queries": queries, "keys": keys, "title": seen.answer.line()}
        grid.to_file(weight_LHTS, path, marked=marked, **names)

    def _path(self, number: int) -> Path:
        assert self.picture is not None
        return self.picture if self.is_one else self.picture.with_stem(f"{self.picture.stem}-{number}")


def _is_blank(seen: Insight) -> bool:
    """Return True for a blank text, which has nothing to look at; a model without attention says so when asked."""
    return not seen.maps and not seen.sides and not seen.draws_itself


def _name_axes(seen: Insight, found: Map, pieces: bool) -> tuple[Tensor, list[str], list[str]]:
    """Return weights [L, H, T, S] with the names of their rows and columns."""
    queries, keys = seen.sides[found.queries], seen.sides[found.keys]
    if pieces:
        return found.weight_LHTS, queries.pieces, keys.pieces
    return merge_pieces(found.weight_LHTS, queries, keys), queries.words, keys.words


def _table(rows: Sequence[dict[str, Any]], console: Console) -> RenderableType:
    """Shade each figure of layers x heads within its column; what is too wide goes on below, then what it all means."""
    names, pen = list(rows[0])[2:], heatmap.Pen.of(console)
    most = {name: max(1e-9, *(row[name] for row in rows)) for name in names}
    lines = list[RenderableType]()
    for part in heatmap.split_columns([len(name) + 1 for name in names], console.width - len(PLACE)):
        header = PLACE + "".join(f"{name:>{len(name) + 2}}" for name in names[part])
        lines += [Text(header, style="bold", no_wrap=True)]
        for row in rows:
            line = Text(f"{row['layer']:>5} {row['head']:>4}", no_wrap=True)
            for name in names[part]:
                line.append(" ").append(f"{row[name]:{len(name) + 1}.2f}", pen.style(row[name] / most[name]))
            lines.append(line)
        lines.append(Text(""))
    meanings = "\n".join(f"{name}: {head_statistics.COLUMNS[name]}" for name in names)
    return Group(*lines, Text(meanings, style="dim"))


def _print_json(content: Any) -> None:
    is_unicode = codecs.lookup(sys.stdout.encoding or "ascii").name.startswith("utf")
    typer.echo(json.dumps(content, ensure_ascii=not is_unicode))
