"""The parts of a server, and how routes ask a model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from saccade.errors import UserError
from saccade.serving.batcher import QueueClosed, QueueFull
from saccade.serving.http.metrics import Metrics
from saccade.serving.http.origins import AllowedSites
from saccade.serving.http.responses import Refusal, refuse
from saccade.serving.http.security import RETRY, Keys, Readiness
from saccade.serving.libretranslate.detection import Detector
from saccade.serving.models import ModelSet, ServedModel
from saccade.serving.settings import Settings
from saccade.serving.waiting import ModelCall


@final
@dataclass
class Service:
    """The parts that all routes share."""

    models: ModelSet
    settings: Settings
    metrics: Metrics
    keys: Keys
    detector: Detector
    readiness: Readiness
    sites: AllowedSites

    async def ask(self, model: ServedModel, work: ModelCall, items: Sequence[Any]) -> list[Any]:
        """Return an answer for each item; refuse with the status that fits."""
        self.metrics.characters.labels(model.run.name).inc(sum(len(item) for item in items if isinstance(item, str)))
        try:
            async with asyncio.timeout(self.settings.timeout):
                return await model.batcher.submit(work, items)
        except TimeoutError:
            raise Refusal(504, f"Timeout: no answer within {self.settings.timeout:g} seconds") from None
        except QueueFull as full:
            raise Refusal(429, "Slowdown: too many texts are waiting", {"Retry-After": str(full.retry_after)}) from None
        except QueueClosed:
            raise Refusal(503, "The server is stopping", {"Retry-After": str(RETRY)}) from None
        except UserError as mistake:
            refuse(str(mistake))

    def check_whole(self, model: ServedModel, *texts: str) -> None:
        """Refuse texts that are longer than a model reads at once."""
        most = model.run.limits
        for text in texts:
            if len(text) > most.characters:
                _refuse_unsplit(f"{len(text)}", f"{most.characters}")
            if (count := model.run.predictor.num_pieces(text)) > most.pieces:
                _refuse_unsplit(f"{count} pieces", f"{most.pieces} pieces")

    def texts(self, given: str | list[str]) -> list[str]:
        """Return one text or several as a list; refuse what exceeds the limits."""
        texts = [given] if isinstance(given, str) else given
        if len(texts) > (most := self.settings.max_texts):
            refuse(f"request ({len(texts)}) exceeds text limit ({most})")
        if (size := sum(map(len, texts))) > (most := self.settings.max_characters):
            refuse(f"request ({size}) exceeds text limit ({most})")
        return texts


def _refuse_unsplit(size: str, limit: str) -> None:
    refuse(f"request ({size}) exceeds text limit ({limit}) for a text that is not split")
