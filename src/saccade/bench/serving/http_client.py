"""A server in its own process, and a cheap client: HTTP/1.1 over one connection that stays open."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, final
from urllib.parse import urlsplit

from saccade.errors import UserError

PATIENCE = 120  # seconds for a server to load its models


class RunningServer(NamedTuple):
    """The address of a server, and its process."""

    host: str
    port: int
    process: subprocess.Popen[bytes]


class Reply(NamedTuple):
    """The status and the body of an answer."""

    status: int
    body: bytes


@contextmanager
def start_server(*arguments: str, log: Path) -> Iterator[RunningServer]:
    """Run `saccade serve` with these arguments on a free port until the block ends."""
    command = [
        sys.executable,
        "-c",
        "from saccade.cli import main; main()",
        "serve",
        "--drain-wait",
        "0",
        "--port",
        "0",
    ]
    with log.open("wb") as errors, subprocess.Popen([*command, *arguments], stderr=errors) as process:
        try:
            yield RunningServer(*_address(log, process), process)
        finally:
            process.terminate()


def _address(log: Path, process: subprocess.Popen[bytes]) -> tuple[str, int]:
    """Wait for the address that the server logs when it listens."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        for line in log.read_text("utf-8").splitlines(keepends=True):
            if line.endswith("\n") and '"listening"' in line:
                url = urlsplit(json.loads(line)["url"])
                return url.hostname or "", url.port or 0
        time.sleep(0.05)
    raise UserError(f"the server didn't start: {log.read_text('utf-8').strip() or 'it took too long'}")


@final
class Connection:
    """A connection on which requests are sent one after another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self._reader, self._writer, self._host = reader, writer, host

    @classmethod
    async def open(cls, host: str, port: int, *, address: str | None = None, window: int | None = None) -> Connection:
        """Connect from an address of this machine; `window` bounds the bytes that are taken before they are read."""
        connection = socket.socket()
        try:
            connection.setblocking(False)
            if window is not None:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
            if address is not None:
                connection.bind((address, 0))
            await asyncio.get_running_loop().sock_connect(connection, (host, port))
            streams = await asyncio.open_connection(sock=connection)
        except BaseException:
            connection.close()
            raise
        return cls(*streams, f"{host}:{port}")

    async def post(self, path: str, body: bytes, kind: str = "application/json") -> Reply:
        """Send a request, and wait for the answer."""
        self._writer.write(self._request(path, body, kind))
        lines = (await self._reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        length = next(int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length:"))
        return Reply(int(lines[0].split()[1]), await self._reader.readexactly(length))

    async def send(self, path: str, body: bytes, *, leave_out: int = 0) -> None:
        """Send a request but for its last bytes, and wait for nothing."""
        request = self._request(path, body, "application/json")
        self._writer.write(request[: len(request) - leave_out])
        await self._writer.drain()

    async def read_to_end(self) -> None:
        """Read until the server closes."""
        while await self._reader.read(1 << 16):
            pass

    def _request(self, path: str, body: bytes, kind: str) -> bytes:
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode("latin-1") + body

    def close(self) -> None:
        self._writer.close()
