"""Forms with parts: as clients write them, and broken in every way."""

from __future__ import annotations

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.serving.http.answers import Refusal
from saccade.serving.http.bodies import parts

HEADER = "multipart/form-data; boundary=x"


def test_by_hand() -> None:
    body = b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\na\r\nb\r\n--x\r\n\r\nno name\r\n--x--\r\n'
    assert parts(HEADER, body) == [("q", "a\r\nb")]
    plain = b"preamble\r\n--x\r\ncontent-disposition: form-data; name=q\r\nX: y\r\n\r\n\xff\r\n--x--"
    assert parts('multipart/form-data; charset=utf-8; boundary="x"', plain) == [("q", "�")]
    assert parts(HEADER, b"") == []
    assert parts(HEADER, b'--x\r\nContent-Disposition: form-data; name="q"') == [("q", "")]


@given(text=st.text(max_size=40), content=st.binary(max_size=200))
def test_what_a_client_sends_comes_in(text: str, content: bytes) -> None:
    request = httpx.Request("POST", "http://x", data={"q": text}, files={"image": ("a;name=b.png", content)})
    found = parts(request.headers["content-type"], request.read())
    assert found == [("q", text), ("image", content)]


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_anything_else_is_read_without_harm(first: bytes, second: bytes) -> None:
    parts(HEADER, first + b'\r\n--x\r\nContent-Disposition: form-data; name="' + second)


def test_mistakes() -> None:
    with pytest.raises(Refusal, match="more than 32 fields"):
        parts(HEADER, b"--x\r\n\r\n\r\n" * 40)
    for header in (
        "multipart/form-data",
        "multipart/form-data; boundary=",
        f"multipart/form-data; boundary={'x' * 0};",
    ):
        with pytest.raises(Refusal, match="without its boundary"):
            parts(header, b"")
