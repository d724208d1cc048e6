"""Forms with parts: as clients write them, and broken in every way."""

from __future__ import annotations

import contextlib

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.serving.http.bodies import parse_multipart
from saccade.serving.http.responses import Refusal

HEADER = "multipart/form-data; boundary=x"


def test_by_hand() -> None:
    body = b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\na\r\nb\r\n--x\r\n\r\nno name\r\n--x--\r\n'
    assert parse_multipart(HEADER, body) == [("q", "a\r\nb")]
    plain = b"preamble\r\n--x\r\ncontent-disposition: form-data; name=q\r\nX: y\r\n\r\n\xff\r\n--x--"
    assert parse_multipart('multipart/form-data; charset=utf-8; boundary="x"', plain) == [("q", "�")]
    assert parse_multipart(HEADER, b"") == []
    assert parse_multipart(HEADER, b'--x\r\nContent-Disposition: form-data; name="q"') == [("q", "")]


@given(text=st.text(max_size=40), content=st.binary(max_size=200))
def test_what_a_client_sends_comes_in(text: str, content: bytes) -> None:
    request = httpx.Request("POST", "http://x", data={"q": text}, files={"image": ("a;name=b.png", content)})
    found = parse_multipart(request.headers["content-type"], request.read())
    assert found == [("q", text), ("image", content)]


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_anything_else_is_read_or_refused(first: bytes, second: bytes) -> None:
    with contextlib.suppress(Refusal):
        parse_multipart(HEADER, first + b'\r\n--x\r\nContent-Disposition: form-data; name="' + second)


@pytest.mark.parametrize(
    "body",
    [
        b"--x\r\nContent Disposition: form-data; name=q\r\n\r\na\r\n--x--",
        b"--x\r\n: form-data; name=q\r\n\r\na\r\n--x--",
        b"--x\r\nContent-Disposition: form-data; name=q\r\r\na\r\n--x--",
        b"--x\r\n" + b"A: b\r\n" * 9 + b"\r\na\r\n--x--",
        b"--x\r\nContent-Disposition: form-data; name=" + b"q" * 5000 + b"\r\n\r\na\r\n--x--",
        b"--xy\r\n",
    ],
)
def test_broken_bodies_are_refused_and_not_logged(body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(Refusal, match="a broken multipart body"):
        parse_multipart(HEADER, body)
    assert caplog.records == []


@pytest.mark.parametrize("inside", [b"\r\n--xa", b"\r\n--x-a"])
def test_what_looks_like_a_boundary_costs_no_time(inside: bytes) -> None:
    body = b"--x\r\nContent-Disposition: form-data; name=q\r\n\r\n"
    assert parse_multipart(HEADER, body + inside + b"\r\n--x--") == [("q", inside.decode())]
    with pytest.raises(Refusal, match="more than 32 fields"):
        parse_multipart(HEADER, body + inside * 1_000_000)


def test_files_are_bytes_and_all_fields_up_to_the_limit_are_read() -> None:
    part = "--x\r\nContent-Disposition: form-data; name={}; {}\r\n\r\nä\r\n"
    body = "".join([part.format("a", 'filename="a.png"'), part.format("b", "filename*=utf-8''b.png")])
    body += "".join(part.format(number, "") for number in range(30)) + "--x--\r\nepilogue"
    file = "ä".encode()
    expected = [("a", file), ("b", file), *((str(number), "ä") for number in range(30))]
    assert parse_multipart(HEADER, body.encode()) == expected


def test_mistakes() -> None:
    with pytest.raises(Refusal, match="more than 32 fields"):
        parse_multipart(HEADER, b"--x\r\n\r\n\r\n" * 40)
    for header in (
        "multipart/form-data",
        "multipart/form-data; boundary=",
        f"multipart/form-data; boundary={'x' * 0};",
    ):
        with pytest.raises(Refusal, match="without its boundary"):
            parse_multipart(header, b"")
