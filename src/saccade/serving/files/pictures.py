"""Pictures and clips from requests, in memory; their size is checked before they are decoded."""

from __future__ import annotations

import base64
import binascii
import io

from saccade.data.pictures.clips import ClipSize, frames_of, is_cut_off
from saccade.data.pictures.images import Pixels, pixels_of
from saccade.errors import UserError
from saccade.serving.http.responses import refuse
from saccade.serving.settings import MAX_PIXELS

FORMATS = ("PNG", "JPEG")
CLIP_FORMATS = ("GIF", "PNG", "WEBP")
TOO_LARGE = f"image has too many pixels; allowed: {MAX_PIXELS:,} in all"


def from_base64(text: str, field: str) -> bytes:
    """Decode the bytes of a file from base64 or a data: address in JSON."""
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        refuse(f"{field} is not base64")


def decode(content: bytes, *, channels: int, resize: int | None) -> Pixels:
    """Decode a picture into pixels [C, Y, X]."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as opened:
            if opened.width * opened.height > MAX_PIXELS:
                refuse(TOO_LARGE)
            return pixels_of(opened, "picture", channels=channels, resize=resize)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        refuse(TOO_LARGE)
    except (OSError, SyntaxError, ValueError, EOFError):
        refuse(f"image is not a complete {' or '.join(FORMATS)} file")


def decode_clip(content: bytes, size: ClipSize) -> Pixels:
    """Decode an animated picture into frames [F, C, Y, X]."""
    from PIL import Image

    incomplete = f"image is not a complete {', '.join(CLIP_FORMATS[:-1])} or {CLIP_FORMATS[-1]} file"
    try:
        with Image.open(io.BytesIO(content), formats=CLIP_FORMATS) as opened:
            if opened.width * opened.height * size.frames > MAX_PIXELS:
                refuse(f"image has too many pixels; allowed: {MAX_PIXELS // size.frames:,} in a frame")
            if is_cut_off(opened, content):
                refuse(incomplete)
            return frames_of(opened, "image", size)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        refuse(TOO_LARGE)
    except UserError as error:
        refuse(str(error))
    except (OSError, SyntaxError, ValueError, EOFError):
        refuse(incomplete)
