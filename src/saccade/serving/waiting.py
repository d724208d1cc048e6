"""Requests that wait for a model, in a fair order."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

QUICK_COST = 2048  # of an item; beyond it is slow work, which never shares a batch with quick work


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
        """Group its items by what they cost: quick ones, and slow ones within a factor of four."""
        parts: dict[int, Part] = {}
        for number, cost in enumerate(costs):
            rank = 0 if cost <= QUICK_COST else 1 + (cost // QUICK_COST).bit_length() // 2
            parts.setdefault(rank, Part(self, rank)).add(number, cost)
        return iter(parts.values())


@final
@dataclass(eq=False)
class Part:
    """Items of a ticket that cost about the same; `rank` 0 are the quick ones."""

    ticket: Ticket
    rank: int
    cost: int = 0
    items: deque[tuple[int, int]] = field(default_factory=deque)  # number in the ticket, and cost

    @property
    def kind(self) -> tuple[ModelCall, int]:
        """Items of equal kinds may be answered together."""
        return self.ticket.call, self.rank

    def add(self, number: int, cost: int) -> None:
        self.items.append((number, cost))
        self.cost += cost

    def take(self) -> tuple[int, int]:
        number, cost = self.items.popleft()
        self.cost -= cost
        return number, cost


class Row(NamedTuple):
    """An item of a ticket, in a batch, and what it was estimated to cost."""

    ticket: Ticket
    number: int
    cost: int


@final
class FairQueue:
    """Parts of tickets. The client that was served least is next; of what one client asked, each ticket in turn.

    How much a client was served is counted in costs (start-time fair queueing, Goyal 1996): one that has just come
    starts where the one that is served now stands.
    """

    def __init__(self) -> None:
        self.num_items = 0
        self.since = 0.0  # when it was empty for the last time
        self.costs = Counter[str]()  # of what waits, by client
        self._parts: dict[str, list[Part]] = {}
        self._served: dict[str, float] = {}
        self._clock = 0.0

    @property
    def oldest(self) -> float:
        """When the oldest ticket came; infinity if there is none."""
        return min((part.ticket.arrived for parts in self._parts.values() for part in parts), default=float("inf"))

    def add(self, part: Part) -> None:
        if not self.num_items:
            self.since = part.ticket.arrived
        client = part.ticket.client
        self._parts.setdefault(client, []).append(part)
        self._served.setdefault(client, self._clock)
        self.num_items += len(part.items)
        self.costs[client] += part.cost

    def remove(self, part: Part) -> None:
        """Remove what is left of a part."""
        client = part.ticket.client
        if part.items:
            self.num_items -= len(part.items)
            self.costs[client] -= part.cost
            self._keep(client, [other for other in self._parts[client] if other is not part])

    def cost_before(self, client: str, cost: int) -> int:
        """Return the cost of what will be served before something new of this client, if nothing else comes."""
        own = self.costs[client] + cost
        return sum(min(other, own) for name, other in self.costs.items() if name != client) + self.costs[client]

    def has_any(self, without: Collection[str] = ()) -> bool:
        """Tell whether a client waits that is not in `without`."""
        return any(client not in without for client in self._parts)

    def take(self, num_items: int, cost: int, without: Collection[str] = ()) -> list[Row]:
        """Take items of one kind, the next client's: as many as fit, at least one."""
        first = min((client for client in self._parts if client not in without), key=self._served.__getitem__)
        kind, self._clock = self._parts[first][0].kind, self._served[first]
        same = {
            client: deque(part for part in parts if part.kind == kind)
            for client, parts in self._parts.items()
            if client not in without
        }
        order = [(self._served[client], number, client) for number, client in enumerate(same) if same[client]]
        heapq.heapify(order)
        rows, left = list[Row](), cost
        while order and len(rows) < num_items:
            _, number, client = heapq.heappop(order)
            part = same[client].popleft()
            if rows and part.items[0][1] > left:
                break
            at, size = part.take()
            rows.append(Row(part.ticket, at, size))
            left -= size
            self._served[client] += size
            self.costs[client] -= size
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
            del self._parts[client], self._served[client], self.costs[client]
