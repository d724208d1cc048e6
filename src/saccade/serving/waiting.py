"""Requests that wait for a model, in a fair order."""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

FIRST_RANK = 128  # the cost below which items have rank 0; each further rank reaches four times as far
SLOW_RANK = 2
MOST_SHARE = 0.25  # of a batch for one client while others ask: who comes next waits for a step of it
SLOW_COST = 512  # from which an item is slow: that of SLOW_RANK


class ModelCall(NamedTuple):
    """A function of a model, items and options. Equal calls share batches."""

    call: Callable[..., Sequence[Any]]
    options: tuple[tuple[str, Any], ...] = ()

    def __call__(self, model: Any, items: list[Any]) -> list[Any]:
        """Return an answer for each item."""
        return list(self.call(model, items, **dict(self.options)))


@final
@dataclass(eq=False)
class Ticket:
    """One request: its items, their answers so far, and the future that waits for them."""

    call: ModelCall
    items: Sequence[Any]
    client: str
    future: asyncio.Future[list[Any]]
    answers: dict[int, Any] = field(default_factory=dict)
    arrived: float = field(default_factory=time.monotonic)
    has_begun: bool = False
    is_gone: bool = False  # nobody waits for it any more

    def split(self, costs: Sequence[int]) -> Iterator[Part]:
        """Group its items by what they cost, within a factor of four."""
        parts: dict[int, Part] = {}
        for number, cost in enumerate(costs):
            rank = ((cost // FIRST_RANK).bit_length() + 1) // 2
            parts.setdefault(rank, Part(self, rank)).add(number, cost)
        return iter(parts.values())


@final
@dataclass(eq=False)
class Part:
    """Items of a ticket that cost about the same: within a factor of four, but for the cheapest, of `rank` 0."""

    ticket: Ticket
    rank: int
    cost: int = 0
    items: deque[tuple[int, int]] = field(default_factory=deque)  # number in the ticket, and cost
    is_over: bool = False  # its client has asked for more than it may have before others

    @property
    def is_slow(self) -> bool:
        return self.is_over or self.rank >= SLOW_RANK

    @property
    def kind(self) -> tuple[ModelCall, int]:
        """Items of equal kinds may be answered together."""
        return self.ticket.call, self.rank

    def add(self, number: int, cost: int) -> None:
        self.items.append((number, cost))
        self.cost += cost

    def take(self) -> Row:
        number, cost = self.items.popleft()
        self.cost -= cost
        return Row(self.ticket, number, cost)


class Row(NamedTuple):
    """An item of a ticket, in a batch, and what it was estimated to cost."""

    ticket: Ticket
    number: int
    cost: int


@final
class FairQueue:
    """Parts of tickets. The client that was served least is next; of what one client asked, each ticket in turn.

    How much a client was served is counted in costs (start-time fair queueing, Goyal 1996): one that has just come
    starts where the one that is served now stands. The room of a batch is divided equally, first among clients.
    """

    def __init__(self) -> None:
        self.num_items = 0
        self.since = 0.0  # when it was empty, or something was taken, for the last time
        self._parts: dict[str, list[Part]] = {}
        self._served: dict[str, float] = {}
        self._clock = 0.0

    @property
    def oldest(self) -> float:
        """Return when the oldest ticket came; infinity if there is none."""
        return min((part.ticket.arrived for parts in self._parts.values() for part in parts), default=math.inf)

    def parts(self) -> list[Part]:
        return [part for parts in self._parts.values() for part in parts]

    def add(self, part: Part) -> None:
        if not self.num_items:
            self.since = part.ticket.arrived
        self._parts.setdefault(part.ticket.client, []).append(part)
        self._served.setdefault(part.ticket.client, self._clock)
        self.num_items += len(part.items)

    def remove(self, part: Part) -> None:
        """Remove what is left of a part."""
        client = part.ticket.client
        if part.items:
            self.num_items -= len(part.items)
            self._keep(client, [other for other in self._parts[client] if other is not part])

    def cost_before(self, client: str, cost: int) -> int:
        """Return the cost of what will be served before something new of this client, if nothing else comes."""
        own = sum(min(part.cost, cost) for part in self._parts.get(client, ()))
        others = (parts for name, parts in self._parts.items() if name != client)
        return own + sum(min(sum(part.cost for part in parts), own + cost) for parts in others)

    def has_any(self, without: Collection[str] = ()) -> bool:
        """Tell whether a client waits that is not in `without`."""
        return any(client not in without for client in self._parts)

    def take(
        self, num_items: int, cost: int, without: Collection[str] = (), *, most_share: float = MOST_SHARE
    ) -> list[Row]:
        """Take items of one kind, the next client's: as many as fit, at least one; of each client at most a share."""
        first = min((client for client in self._parts if client not in without), key=self._served.__getitem__)
        kind, self._clock = self._parts[first][0].kind, self._served[first]
        same = {
            client: found
            for client, parts in self._parts.items()
            if client not in without and (found := deque(part for part in parts if part.kind == kind))
        }
        rooms = {client: _Room(cost * min(most_share, 1 / len(same)), len(parts)) for client, parts in same.items()}
        order = [(self._served[client], number, client) for number, client in enumerate(same)]
        heapq.heapify(order)
        rows, left = list[Row](), cost
        while order and len(rows) < num_items:
            _, number, client = heapq.heappop(order)
            part = same[client].popleft()
            if rows and part.items[0][1] > left:
                break
            if rooms[client].admits(part):
                rows.append(part.take())
                left -= rows[-1].cost
                self._served[client] += rows[-1].cost
                if part.items:
                    same[client].append(part)
            if same[client]:
                heapq.heappush(order, (self._served[client], number, client))
        self.num_items -= len(rows)
        self.since = time.monotonic()
        taken = {row.ticket for row in rows}
        for client in {row.ticket.client for row in rows}:
            parts = sorted(self._parts[client], key=lambda part: part.kind == kind and part.ticket in taken)
            self._keep(client, [part for part in parts if part.items])
        return rows

    def _keep(self, client: str, parts: list[Part]) -> None:
        """Store the parts that a client has left; forget a client without any."""
        if parts:
            self._parts[client] = parts
        else:
            del self._parts[client], self._served[client]


@final
class _Room:
    """A client's part of a batch: an equal share for each of its tickets, or at least its first item."""

    def __init__(self, cost: float, num_parts: int) -> None:
        self._cost, self._share = cost, cost / num_parts
        self._taken, self._total = Counter[Part](), 0

    def admits(self, part: Part) -> bool:
        """Tell whether the next item of a part has room, and count it."""
        cost, taken = part.items[0][1], self._taken[part]
        if (taken and taken + cost > self._share) or (self._total and self._total + cost > self._cost):
            return False
        self._taken[part] += cost
        self._total += cost
        return True
