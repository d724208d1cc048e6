"""Fetches files over HTTP: complete and as expected, or not at all."""

from __future__ import annotations

import hashlib
import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import saccade
from saccade.datasets.dataset import Download
from saccade.errors import UserError

AT_ONCE = 1 << 16  # bytes
TIMEOUT = 30.0  # seconds without a byte
Watch = Callable[[str, int, int | None], None]  # the file's name, the bytes so far, and how many there will be


def fetch(download: Download, folder: Path, watch: Watch) -> Path:
    """Write a file into a folder that is removed if anything fails, under its own name, and return its path."""
    path = folder / download.name
    request = urllib.request.Request(download.url, headers={"User-Agent": f"saccade/{saccade.__version__}"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            _receive(answer, path, download, watch)
    except urllib.error.HTTPError as error:
        error.close()
        raise UserError(f"{download.url}: the server answers {error.code} {error.reason}") from None
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError, ssl.SSLError) as error:
        reason = getattr(error, "reason", None) or error or type(error).__name__
        raise UserError(f"{download.url} cannot be reached ({reason})") from None
    return path


def _receive(answer: http.client.HTTPResponse, path: Path, download: Download, watch: Watch) -> None:
    """Write an answer to a file; refuse one that is cut off or has another checksum than expected."""
    length = answer.headers.get("Content-Length", "")
    total, done, digest = int(length) if length.isdigit() else None, 0, hashlib.sha256()
    with path.open("wb") as file:
        while part := answer.read(AT_ONCE):
            file.write(part)
            digest.update(part)
            done += len(part)
            watch(download.name, done, total)
    if total is not None and done < total:
        raise UserError(f"{download.url}: the connection broke after {done:,} of {total:,} bytes; try again")
    if download.sha256 is not None and digest.hexdigest() != download.sha256:
        found, wanted = digest.hexdigest(), download.sha256
        raise UserError(
            f"{download.url}: another file than expected came (SHA-256 {found[:12]}..., not {wanted[:12]}...)"
        )
