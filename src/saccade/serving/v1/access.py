"""Parts that the routes of /v1 share: the key that they need, the decoding of pictures, and the options of a search."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from fastapi import Depends, Header
from numpy.typing import NDArray

from saccade.data.pictures.clips import ClipSize
from saccade.data.pictures.images import Pixels
from saccade.serving.files import pictures, sounds
from saccade.serving.http.responses import refuse
from saccade.serving.models import ServedModel
from saccade.serving.v1.schemas import Decoding

Key = Annotated[str | None, Header(alias="X-API-Key", description="An API key, if the server needs one.")]
Authorization = Annotated[str | None, Header(description="Or: Bearer, then the key.")]


def _describe_key(key: Key = None, authorization: Authorization = None) -> None:
    """Name the headers in the documentation; they are checked before a body is read."""


NEEDS_KEY = [Depends(_describe_key)]  # what a route depends on that asks for a key, if the server has keys


def decode_picture(picture: str | bytes, model: ServedModel) -> Pixels:
    """Decode a picture or a clip, base64 or a file's bytes, to the pixels that a model reads."""
    content = pictures.from_base64(picture, "image") if isinstance(picture, str) else picture
    wanted = model.run.predictor.traits.picture
    assert wanted is not None
    if wanted.frames is not None:
        return pictures.decode_clip(content, ClipSize(wanted.resize or wanted.rows, wanted.frames))
    return pictures.decode(content, channels=wanted.channels, resize=wanted.resize)


def decode_sound(sound: str | bytes, model: ServedModel) -> NDArray[np.float16]:
    """Decode a sound, base64 or a file's bytes, to the frames that a model reads."""
    content = pictures.from_base64(sound, "sound") if isinstance(sound, str) else sound
    mel = model.run.predictor.traits.sound
    assert mel is not None
    return sounds.decode(content, mel)


def decoding_options(body: Decoding, model: ServedModel) -> dict[str, Any]:
    """Return the search options of a request, over those of the run."""
    if body.beam is not None and body.num_best > body.beam:
        refuse(f"num_best: {body.num_best} given; a beam of {body.beam} holds no more than its width")
    return body.options(model.run.predictor.traits.beam or 1)
