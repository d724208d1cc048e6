"""Answers that are sent while they are written, as server-sent events.

event: text      data: {"text": " more of the answer"}
event: done      data: what is answered without a stream, at the end
event: error     data: {"error": "one line"}, if there will be no answer
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, final

from starlette.responses import StreamingResponse

from saccade.serving import work
from saccade.serving.http.responses import Refusal, encode_json
from saccade.serving.models import ServedModel
from saccade.serving.service import Service
from saccade.serving.waiting import ModelCall

HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # proxies send each event at once
MARGIN = 0.1  # of the time for an answer, to say that it is over


@final
class AnswerStream:
    """One answer on its way: what a model's thread tells, and the whole at the end."""

    def __init__(self, service: Service, model: ServedModel, options: tuple[tuple[str, Any], ...], given: Any) -> None:
        loop = asyncio.get_running_loop()
        self.name, self.timeout = model.run.name, service.settings.timeout
        self._end = loop.time() + self.timeout * (1 - MARGIN)
        self._parts: asyncio.Queue[str] = asyncio.Queue()

        def tell(part: str) -> None:
            loop.call_soon_threadsafe(self._parts.put_nowait, part)

        call = ModelCall(work.follow, (*options, ("tell", tell)))  # it shares a batch with no other
        self._answer = asyncio.ensure_future(service.ask(model, call, [given]))

    async def respond(self) -> StreamingResponse:
        """Begin the response; what is refused before the first part is refused as everywhere."""
        first = await self._next()
        if first is None:
            await self._answer
        return StreamingResponse(self._events(first), headers=HEADERS, media_type="text/event-stream")

    async def _next(self) -> str | None:
        """Wait for the next part; None: there will be no more."""
        if not self._parts.empty():
            return self._parts.get_nowait()
        part = asyncio.ensure_future(self._parts.get())
        try:
            async with asyncio.timeout_at(self._end):
                await asyncio.wait([part, self._answer], return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            self._answer.cancel()
            raise
        finally:
            if not part.done():
                part.cancel()
        if part.done() and not part.cancelled():
            return part.result()
        return None if self._parts.empty() else self._parts.get_nowait()

    async def _events(self, first: str | None) -> AsyncIterator[bytes]:
        part = first
        try:
            while part is not None:
                yield _event("text", {"text": part})
                part = await self._next()
            yield _event("done", {"model": self.name, "answers": await self._answer})
        except TimeoutError:
            yield _event("error", {"error": f"Timeout: no answer within {self.timeout:g} seconds"})
        except Refusal as refusal:
            yield _event("error", {"error": refusal.detail})
        finally:
            self._answer.cancel()


def _event(name: str, content: dict[str, Any]) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + encode_json(content) + b"\n\n"
