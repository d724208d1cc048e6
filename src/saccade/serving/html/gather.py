"""Keep elements whole: a link is written once, with all that is in it, wherever a model puts its words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from saccade.serving.html.guard import MAY_SPLIT
from saccade.serving.html.inline import Item, Path
from saccade.serving.html.tree import Element, VerbatimHtml

Runs = list[list[int]]


def gather(items: Sequence[Item]) -> list[Item]:
    """Bring the items of every element together that may not be written twice, the outermost first.

    Most of its words stay in it, the others leave it; images and remarks move to its words.
    """
    found, paths = list(items), {element: path for item in items for element, path in _elements(item.path or ())}
    for element in sorted(filter(is_whole, paths), key=lambda one: len(paths[one])):
        found = _gather_one(found, element)
    for element, path in paths.items():
        if not any(element in (item.path or ()) for item in found):
            _put_back(found, path)
    return found


def is_whole(element: Element | VerbatimHtml) -> bool:
    """Return whether there is always one of an element."""
    return isinstance(element, Element) and element.tag not in MAY_SPLIT


def _elements(path: Path) -> Iterator[tuple[Element | VerbatimHtml, Path]]:
    return ((element, path[: depth + 1]) for depth, element in enumerate(path))


def _gather_one(items: list[Item], element: Element | VerbatimHtml) -> list[Item]:
    runs = _runs(items, element)
    if len(runs) < 2:
        return items
    kept = max(runs, key=lambda run: sum(not _may_move(items[row]) for row in run))
    outside = {row for run in runs if run is not kept for row in run}
    moved = [items[row] for row in sorted(outside) if _may_move(items[row])]
    found: list[Item] = []
    for row, item in enumerate(items):
        if row not in outside:
            found.append(item)
        elif not _may_move(item):
            found.append(item._replace(path=_leave(item.path or (), element)))
        found += moved if row == kept[-1] else []
    return found


def _runs(items: Sequence[Item], element: Element | VerbatimHtml) -> Runs:
    """Return the rows of an element, those together that nothing else stands between."""
    runs: Runs = [[]]
    for row, item in enumerate(items):
        if item.path is not None and element in item.path:
            runs[-1].append(row)
        elif item.path is not None and runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _may_move(item: Item) -> bool:
    return item.may_move or any(isinstance(element, VerbatimHtml) for element in item.path or ())


def _leave(path: Path, element: Element | VerbatimHtml) -> Path:
    """Take a word out of an element, and out of those inside of it that must stay whole in it."""
    at = path.index(element)
    return (*path[:at], *(inner for inner in path[at + 1 :] if not is_whole(inner)))


def _put_back(items: list[Item], path: Path) -> None:
    """Write an element that no word is left in, empty, inside of what was around it."""
    around = next((one for one in reversed(path[:-1]) if is_whole(one)), None)
    if around is None:
        items.append(Item("", path, may_move=True))
        return
    row = next(row for row, item in enumerate(items) if around in (item.path or ()))
    outer = items[row].path or ()
    inner = path[path.index(around) + 1 :]
    items.insert(row + 1, Item("", (*outer[: outer.index(around) + 1], *inner), may_move=True))
