"""What every route of /v1 does first: check the key, find the model, and hold texts and pictures to the limits."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Header

from saccade.data.pictures.images import Pixels
from saccade.serving.http import pictures
from saccade.serving.http.answers import refuse
from saccade.serving.http.security import bearer
from saccade.serving.models import ServedModel
from saccade.serving.service import Service
from saccade.serving.settings import MOST_PIECES, MOST_WHOLE
from saccade.serving.v1.schemas import Decoding

Key = Annotated[str | None, Header(alias="X-API-Key", description="Where the server asks for one.")]
Authorization = Annotated[str | None, Header(description="Or: Bearer, and the key.")]


def check_key(service: Service, key: str | None, authorization: str | None) -> None:
    """Refuse who has no key, where the server asks for one."""
    service.keys.check(key or bearer(authorization))


def check_whole(model: ServedModel, *texts: str) -> None:
    """Refuse long texts that are read at once: the cost grows with the square of their length."""
    for text in texts:
        if len(text) > MOST_WHOLE:
            refuse(f"request ({len(text)}) exceeds text limit ({MOST_WHOLE}) for a text that is not split")
        if (count := model.run.predictor.num_pieces(text)) > MOST_PIECES:
            refuse(f"request ({count} pieces) exceeds text limit ({MOST_PIECES} pieces) for a text that is not split")


def decode_picture(picture: str | bytes, model: ServedModel) -> Pixels:
    """Decode a picture, base64 or a file's bytes, to the pixels that a model reads."""
    content = pictures.from_base64(picture) if isinstance(picture, str) else picture
    wanted = model.run.predictor.traits.picture
    assert wanted is not None
    return pictures.decode(content, channels=wanted.channels, resize=wanted.resize)


def decoding_options(body: Decoding, model: ServedModel) -> dict[str, Any]:
    """Return how to search, as a request says it and over what the run says."""
    if body.beam is not None and body.num_best > body.beam:
        refuse(f"num_best: {body.num_best} given; a beam of {body.beam} holds no more than its width")
    return body.options(model.run.predictor.traits.beam or 1)
