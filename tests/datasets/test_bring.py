"""Bringing data: whole and as expected, or nothing at all; without a network, a line that says what to do."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from filelock import FileLock

from saccade.datasets import bring as bringing
from saccade.datasets.bring import bring, digest, is_there, point_to_data
from saccade.datasets.dataset import DataSet, Download, MadeData, PublicData
from saccade.datasets.material import Material
from saccade.datasets.prepare import copy_as
from saccade.errors import UserError
from saccade.runs.config import check_config

CONTENT = b"a line\n" * 40_000
CHECKSUM = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Sends /whole.txt; of /broken.txt a part of what it promises; says of all else that there is no such thing."""

    def do_GET(self) -> None:
        if self.path not in ("/whole.txt", "/broken.txt"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT if self.path == "/whole.txt" else CONTENT[:100_000])

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def public(*downloads: Download, checksum: str | None = CHECKSUM) -> PublicData:
    return PublicData(
        what="lines",
        size="1 MB",
        files={"lines.txt.gz": checksum},
        licence="CC0",
        home="https://example.org/lines",
        downloads=downloads,
        wanted="a folder with whole.txt",
        prepare=copy_as({"lines.txt.gz": ("whole.txt", "broken.txt")}),
    )


def get(data_set: DataSet, folder: Path, given: Path | None = None) -> list[str]:
    """What is told while `lines` is brought."""
    told = list[str]()
    bring("lines", data_set, folder, given=given, tell=told.append, watch=lambda *_: None)
    return told


def test_a_download_is_prepared_and_says_where_it_is_from(server: str, tmp_path: Path) -> None:
    folder, seen = tmp_path / "data" / "lines", list[tuple[str, int, int | None]]()
    one = public(Download(f"{server}/whole.txt", CHECKSUM))
    assert not is_there(one, folder)
    bring("lines", one, folder, given=None, tell=lambda _: None, watch=lambda *now: seen.append(now))
    assert is_there(one, folder)
    assert gzip.decompress((folder / "lines.txt.gz").read_bytes()) == CONTENT
    said = (folder / "SOURCE.txt").read_text("utf-8")
    assert "CC0" in said
    assert "https://example.org/lines" in said
    assert seen[-1] == ("whole.txt", len(CONTENT), len(CONTENT))
    assert [path.name for path in folder.parent.iterdir()] == ["lines"]


@pytest.mark.parametrize(
    ("path", "checksum", "of_contents", "message"),
    [
        ("/whole.txt", "0" * 64, CHECKSUM, "another file than expected came"),
        ("/whole.txt", None, "0" * 64, "lines.txt.gz has other contents than expected"),
        ("/broken.txt", None, CHECKSUM, "the connection broke after 100,000 of 280,000 bytes"),
        ("/missing.txt", None, CHECKSUM, "the server answers 404 Not Found"),
    ],
)
def test_what_is_not_right_leaves_nothing(
    server: str, path: str, checksum: str | None, of_contents: str, message: str, tmp_path: Path
) -> None:
    folder = tmp_path / "data" / "lines"
    folder.mkdir(parents=True)
    (folder / "lines.txt.gz").write_text("mine")
    with pytest.raises(UserError, match=message) as refused:
        get(public(Download(server + path, checksum), checksum=of_contents), folder)
    assert "Nothing was written" in str(refused.value)
    assert (folder / "lines.txt.gz").read_text() == "mine"
    assert [path.name for path in folder.parent.iterdir()] == ["lines"]


def test_without_a_network_the_line_has_the_address_and_the_next_command(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        get(public(Download("http://127.0.0.1:9/whole.txt")), tmp_path / "lines")
    assert "http://127.0.0.1:9/whole.txt cannot be reached" in str(refused.value)
    assert "saccade data lines --from FOLDER" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UserError, match=r"put 2 files from http://127.0.0.1:9/ \(a.txt, b.txt\) into a folder"):
        get(public(*(Download(f"http://127.0.0.1:9/{name}.txt") for name in "ab")), tmp_path / "lines")


def test_an_interruption_leaves_nothing(server: str, tmp_path: Path) -> None:
    def interrupt(_: str, done: int, __: int | None) -> None:
        if done > 100_000:
            raise KeyboardInterrupt

    one, folder = public(Download(f"{server}/whole.txt")), tmp_path / "lines"
    with pytest.raises(KeyboardInterrupt):
        bring("lines", one, folder, given=None, tell=lambda _: None, watch=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_goes(server: str, tmp_path: Path) -> None:
    (tmp_path / ".lines-left").mkdir()
    (tmp_path / ".lines-left" / "half").write_text("x")
    get(public(Download(f"{server}/whole.txt")), tmp_path / "lines")
    assert [path.name for path in tmp_path.iterdir()] == ["lines"]


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    with FileLock(tmp_path / ".lines.lock"), pytest.raises(UserError, match="another process is bringing it"):
        get(public(), tmp_path / "lines", tmp_path)


def test_a_licence_may_keep_a_program_from_fetching(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        get(public(), tmp_path / "lines")
    for part in ("CC0", "https://example.org/lines", "--from PATH", "a folder with whole.txt"):
        assert part in str(refused.value)


@pytest.mark.parametrize("kind", ["folder", "file", "gz", "zip", "tar"])
def test_what_the_user_has_is_prepared(kind: str, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    inside = given / "deep" / "whole.txt"
    inside.parent.mkdir()
    inside.write_bytes(CONTENT)
    if kind == "file":
        given = inside
    elif kind == "gz":
        inside.unlink()
        (inside.parent / "whole.txt.gz").write_bytes(gzip.compress(CONTENT))
    elif kind == "zip":
        with zipfile.ZipFile(tmp_path / "lines.zip", "w") as packed:
            packed.write(inside, "main/whole.txt")
        given = tmp_path / "lines.zip"
    elif kind == "tar":
        with tarfile.open(tmp_path / "lines.tar.gz", "w:gz") as packed_tar:
            packed_tar.add(inside, "main/whole.txt")
        given = tmp_path / "lines.tar.gz"
    assert get(public(), tmp_path / "lines", given) == []
    assert digest(tmp_path / "lines" / "lines.txt.gz") == CHECKSUM


def test_given_files_may_differ_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "whole.txt").write_text("mine\n")
    (said,) = get(public(), tmp_path / "lines", tmp_path / "whole.txt")
    assert said.startswith("lines.txt.gz has other contents")
    assert gzip.decompress((tmp_path / "lines" / "lines.txt.gz").read_bytes()) == b"mine\n"


def test_given_files_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("x")
    with pytest.raises(UserError, match=r"there is no whole.txt or broken.txt in it"):
        get(public(), tmp_path / "lines", tmp_path / "other.txt")
    for name in ("one", "two"):
        (tmp_path / "folder" / name).mkdir(parents=True)
        (tmp_path / "folder" / name / "whole.txt").write_text(name)
    with pytest.raises(UserError, match=r"several files of that name in it: one/whole.txt and"):
        get(public(), tmp_path / "lines", tmp_path / "folder")
    (tmp_path / "whole.txt.gz").write_bytes(gzip.compress(CONTENT)[:100])
    with pytest.raises(UserError, match="it cannot be read"):
        get(public(), tmp_path / "lines", tmp_path / "whole.txt.gz")
    with pytest.raises(UserError, match="--from: there is no file or folder at"):
        get(public(), tmp_path / "lines", tmp_path / "nowhere")
    assert not (tmp_path / "lines").exists()


def test_made_data_take_no_path_and_keep_what_else_is_there(tmp_path: Path) -> None:
    def make(folder: Path) -> None:
        (folder / "keys").mkdir()
        (folder / "keys" / "one.wav").write_text("new")

    made, folder = MadeData(what="x", size="1", files=("keys",), make=make), tmp_path / "lines"
    (folder / "keys").mkdir(parents=True)
    (folder / "keys" / "old.wav").write_text("old")
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="saccade makes lines itself"):
        get(made, folder, tmp_path)
    get(made, folder)
    assert sorted(path.name for path in folder.rglob("*")) == ["SOURCE.txt", "keys", "notes.txt", "one.wav"]


def test_a_config_without_its_data_is_told_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bringing, "DATASETS", {"lines": replace(public())})

    def config(train: str) -> object:
        files = {"train": {"source": train}, "valid": {"source": "own.tsv"}}
        return check_config({"data": files}, "test")

    with pytest.raises(UserError, match=r"there is no folder at data/lines; saccade data lines brings it"):
        point_to_data(config("data/lines/lines.tsv"))
    point_to_data(config("data/others/lines.tsv"))
    (tmp_path / "data" / "lines").mkdir(parents=True)
    point_to_data(config("data/lines/lines.tsv"))


def test_a_folder_has_a_digest(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one").write_text("1")
    before = digest(tmp_path / "a")
    (tmp_path / "a" / "one").rename(tmp_path / "a" / "two")
    assert digest(tmp_path / "a") != before


def test_material_reads_several_roots(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
    material = Material(tmp_path / "one", tmp_path / "two")
    assert material.read("two") == b"two"
    assert str(material) == str(tmp_path)
