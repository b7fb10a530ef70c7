from __future__ import annotations

import functools
import http.server
import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from divscore import sources
from divscore.errors import FileError
from divscore.sources.items import Items, PictureFolder, TableItems
from divscore.sources.places import form_of

PIXEL = b"not looked at here"


def touch(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(PIXEL)
    return root


def ids(source: Items) -> list[str]:
    return [name for items in source for name in items.ids]


def contents(source: Items) -> list[Any]:
    return [content for items in source for content in items.contents]


def items_of(path: object, **asked: Any) -> Items:
    found = sources.open(str(path), **asked)
    assert isinstance(found, Items), found
    return found


def test_folder_is_read_recursively_in_order_and_without_what_is_no_picture(tmp_path: Path) -> None:
    touch(
        tmp_path,
        "b.JPG",
        "a.png",
        "z/y.webp",
        "z/a/x.tiff",
        "c.gif",
        "notes.txt",
        ".hidden.jpg",
        ".git/a.png",
        "e.bmp",
    )
    source = PictureFolder(str(tmp_path)).select(["folder"])
    assert ids(source) == ["a.png", "b.JPG", "c.gif", "e.bmp", "z/y.webp", "z/a/x.tiff"]
    folders = [text for items in source for text in items.values["folder"]]
    assert folders == [tmp_path.name] * 4 + ["z", "z/a"]
    assert (source.rows, source.other, source.kind) == (6, {".txt": 1}, "image")
    assert ids(source) == ids(source)


def test_links_that_lead_back_are_entered_once(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.png", "b/2.png")
    (tmp_path / "a" / "up").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "b" / "self").symlink_to(tmp_path / "b", target_is_directory=True)
    (tmp_path / "c").symlink_to(tmp_path / "c")  # a link to itself is a file that cannot be read
    (tmp_path / "dead.png").symlink_to(tmp_path / "nowhere.png")
    assert ids(PictureFolder(str(tmp_path))) == ["dead.png", "a/1.png", "b/2.png"]


def test_many_files_in_one_folder(tmp_path: Path) -> None:
    for number in range(3_000):
        (tmp_path / f"{number:06}.jpg").touch()
    source = PictureFolder(str(tmp_path))
    assert source.rows == 3_000
    largest = 0
    seen = 0
    for items in source:
        largest = max(largest, len(items))
        seen += len(items)
    assert seen == 3_000
    assert largest <= 1024


def test_odd_names(tmp_path: Path) -> None:
    odd = ["two\nlines.png", "😀.png", "a b'\"c.png", "\x1b[31mred.png", "-rf.png", "ü.png"]
    touch(tmp_path, *odd)
    try:
        with open(os.path.join(os.fsencode(tmp_path), b"\xff\xfe.png"), "wb") as stream:
            stream.write(PIXEL)
        odd.append("\\xff\\xfe.png")
    except OSError:
        pass  # a file system that takes UTF-8 only
    source = PictureFolder(str(tmp_path))
    assert sorted(ids(source)) == sorted(odd)
    for address in contents(source):
        with open(address, "rb") as stream:
            assert stream.read() == PIXEL


def test_a_folder_without_pictures_says_so(tmp_path: Path) -> None:
    touch(tmp_path, "a.docx", "b.py")
    with pytest.raises(FileError, match=r"has 2 files, but no pictures"):
        PictureFolder(str(tmp_path))
    (tmp_path / "none").mkdir()
    with pytest.raises(FileError, match="has no files"):
        PictureFolder(str(tmp_path / "none"))


def test_pictures_that_cannot_be_read_are_items(tmp_path: Path) -> None:
    touch(tmp_path, "a.png", "b.heic", "c.mp4", "d.CR2", "e.svg", "f.txt", "Thumbs.db", "g.xmp")
    source = PictureFolder(str(tmp_path))
    assert ids(source) == ["a.png", "b.heic", "c.mp4", "d.CR2", "e.svg"]
    assert source.rows == 5
    assert source.other == {".txt": 1, ".db": 1, ".xmp": 1}
    assert ids(items_of(tmp_path / "[a-e].*")) == [str(tmp_path / name) for name in ids(source)]
    (tmp_path / "list.csv").write_text("file\nc.mp4\nd.CR2\na.png\n")
    assert items_of(tmp_path / "list.csv").kind == "image"


def test_a_folder_of_videos_says_what_to_do(tmp_path: Path) -> None:
    touch(tmp_path, "a.mp4", "b.mov", "c.psd")
    for thing in (tmp_path, tmp_path / "*"):
        with pytest.raises(
            FileError,
            match=r"2 files were not read \(\.mov, \.mp4\): extract frames as JPEG; 1 file was not read \(\.psd\)",
        ):
            sources.open(thing)
    with pytest.raises(FileError, match=r"a\.mp4 has no pictures that can be read; .*extract frames"):
        sources.open(tmp_path / "a.mp4")


def test_a_folder_that_may_not_be_listed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "a.png", "shut/b.png")
    listing = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied")
        return listing(path)

    monkeypatch.setattr(os, "scandir", scandir)
    source = PictureFolder(str(tmp_path))
    assert ids(source) == ["a.png"]
    assert "shut cannot be listed: Permission denied" in source.problems[0]


TABLE = {
    "csv": 'id,text,likes,feed\nx,Hello,3,a\ny,"Two\nlines",4,b\nz,,5,a\n',
    "tsv": "id\ttext\tlikes\tfeed\nx\tHello\t3\ta\ny\tTwo lines\t4\tb\nz\t\t5\ta\n",
    "jsonl": '{"id":"x","text":"Hello","likes":3,"feed":"a"}\n{"id":"y","text":"Two\\nlines","feed":"b"}\n{"id":"z"}\n',
}


@pytest.mark.parametrize("suffix", TABLE)
def test_text_columns_of_text_tables(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"posts.{suffix}"
    path.write_text(TABLE[suffix], encoding="utf-8")
    source = items_of(path, extra=["feed"])
    assert source.kind == "text"
    assert isinstance(source, TableItems)
    assert source.column == "text"
    assert ids(source) == ["x", "y", "z"]
    assert [text.replace("\n", " ") for text in contents(source)] == ["Hello", "Two lines", ""]
    feeds = [text for items in source for text in items.values["feed"]]
    assert feeds == (["a", "b", ""] if suffix == "jsonl" else ["a", "b", "a"])


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_text_columns_of_binary_tables(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"posts.{suffix}"
    table = pa.table({"tweet": ["Hello", None, "there"], "n": [1, 2, 3], "feed": ["a", "b", None]})
    if suffix == "parquet":
        pq.write_table(table, path, row_group_size=2)
    else:
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
    source = items_of(path, extra=["feed"])
    assert source.rows == 3
    assert contents(source) == ["Hello", "", "there"]
    assert ids(source) == ["0", "1", "2"]


def test_lines_of_text(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_bytes("\ufeffAnna\r\n\r\n  Björn \n".encode() + b"\xff\xfe\n" + b"x" * (1 << 20) + b"y\nlast")
    source = items_of(path)
    assert contents(source) == ["Anna", "Björn", "last"]
    assert source.unreadable == 2
    assert ["not UTF-8" in source.problems[0], "longer than" in source.problems[1]] == [True, True]


def test_paths_of_pictures_are_taken_from_the_tables_folder(tmp_path: Path) -> None:
    touch(tmp_path, "photos/a.png", "photos/b.png")
    path = tmp_path / "labels.csv"
    path.write_text(f"file,group\nphotos/a.png,x\n{tmp_path}/photos/b.png,y\n\n,x\n", encoding="utf-8")
    source = items_of(path, exclude=["group"])
    assert source.kind == "image"
    assert contents(source)[:2] == [f"{tmp_path}/photos/a.png", f"{tmp_path}/photos/b.png"]


def test_pictures_inside_a_table(tmp_path: Path) -> None:
    cells = [{"bytes": b"one", "path": "a.png"}, {"bytes": None, "path": "b.png"}, None]
    pq.write_table(pa.table({"image": cells, "label": ["x", "y", "x"]}), tmp_path / "a.parquet")
    source = items_of(tmp_path / "a.parquet", extra=["label"])
    assert (source.kind, contents(source)) == ("image", [b"one", b"", b""])


@pytest.mark.parametrize(
    ("header", "row", "asked", "expected"),
    [
        ("id,text", "1,Hello", {}, "text"),
        ("id,bio", "1,Hello", {}, "bio"),
        ("id,text,likes", "1,Hello,3", {}, "text"),
        ("name,x,y", "a,0.5,1", {}, None),
        ("name,x,y", "a,0.5,1", {"column": "name"}, "name"),
        ("name,x,y", "a,0.5,1", {"forced": True}, "name"),
        ("file,x,y", "a.png,0.5,1", {}, "file"),
        ("file," + ",".join(f"x{i}" for i in range(8)), "a.png" + ",1.5" * 8, {}, None),
        ("text,embedding", 'Hello,"[1, 2]"', {}, None),
        ("text,embedding", 'Hello,"[1, 2]"', {"forced": True}, "text"),
        ("text,embedding", 'Hello,"[1, 2]"', {"column": "embedding"}, None),
        ("bio,sex", "Hello,f", {"exclude": ["sex"]}, "bio"),
        ("x,y", "0.5,1", {}, None),
        ("name,age,sex", "Anna,7,f", {"exclude": ["sex"]}, "name"),
        ("path,note", "a.docx,Hello", {"exclude": ["note"]}, "path"),
    ],
)
def test_which_column_holds_the_items(
    tmp_path: Path, header: str, row: str, asked: dict[str, Any], expected: str | None
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"{header}\n{row}\n{row}\n", encoding="utf-8")
    found = sources.open(path, **asked)
    assert (None if found.kind == "vectors" else found.column) == expected


def test_two_columns_of_text_are_not_guessed_between(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("bio,motto\nHello,there\n", encoding="utf-8")
    with pytest.raises(FileError, match=r"it is unclear which column has the items; it has 'bio', 'motto'"):
        sources.open(tmp_path / "a.csv")


def test_semicolons_and_tabs_are_understood(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id;text;feed\n1;Hello, you;x\n2;there;y\n", encoding="utf-8")
    assert contents(items_of(tmp_path / "a.csv")) == ["Hello, you", "there"]
    (tmp_path / "b.csv").write_text("id\ttext\n1\tHello, you\n", encoding="utf-8")
    assert contents(items_of(tmp_path / "b.csv")) == ["Hello, you"]


def test_broken_rows_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n1,Hello\n2,too,many\n3,there\n", encoding="utf-8")
    source = items_of(tmp_path / "a.csv")
    assert contents(source) == ["Hello", "there"]
    assert source.unreadable == 1
    with pytest.raises(FileError, match="line 3: has 3 cells"):
        contents(items_of(tmp_path / "a.csv", strict=True))


def test_patterns(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.png", "a/2.jpg", "b/3.png")
    assert len(ids(items_of(f"{tmp_path}/*/*.png"))) == 2
    for name in "xy":
        (tmp_path / f"{name}.csv").write_text(f"text\n{name}1\n{name}2\n", encoding="utf-8")
    source = items_of(f"{tmp_path}/*.csv")
    assert contents(source) == ["x1", "x2", "y1", "y2"]
    assert ids(source) == ["0", "1", "2", "3"]
    touch(tmp_path, "c/1.png", "c/1.npy")
    with pytest.raises(FileError, match="names pictures and other files"):
        sources.open(f"{tmp_path}/c/*")


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ('{"text": "a"}\n', ".jsonl"),
        ("id,text\n1,Anna\n", ".csv"),
        ("id\ttext\n1\tAnna, too\n", ".tsv"),
        ("text\nHello\n", ".csv"),
        ("Anna\nBerta\n", ".txt"),
        ("Hello, you\nHow are you?\nFine, thanks, and you\n", ".txt"),
        ("\ufeffid,text\n1,a\n", ".csv"),
        ("only one line", ".txt"),
    ],
)
def test_what_standard_input_holds(head: str, expected: str) -> None:
    assert form_of(head.encode()) == expected


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(b"Anna\nBerta\n")

    monkeypatch.setattr("sys.stdin", Stdin)
    source = items_of("-")
    assert (contents(source), source.name) == (["Anna", "Berta"], "stdin")


def test_a_given_format_overrides_the_suffix(tmp_path: Path) -> None:
    (tmp_path / "feed.log").write_text("a,b\nc,d\n", encoding="utf-8")
    assert contents(items_of(tmp_path / "feed.log", form=".txt")) == ["a,b", "c,d"]


def test_memory_file_system() -> None:
    memory = fsspec.filesystem("memory")
    for name in ("photos/a.png", "photos/sub/b.jpg", "photos/.c.png", "photos/readme.md"):
        memory.pipe(f"/bucket/{name}", PIXEL)
    memory.pipe("/bucket/posts.csv", b"text,feed\nHello,a\n")
    memory.pipe("/bucket/labels.csv", b"file,group\nphotos/a.png,x\nphotos/sub/b.jpg,y\n")
    try:
        source = items_of("memory://bucket/photos", extra=["folder"])
        assert ids(source) == ["a.png", "sub/b.jpg"]
        assert [fsspec.open(address).open().read() for address in contents(source)] == [PIXEL, PIXEL]
        assert contents(items_of("memory://bucket/posts.csv")) == ["Hello"]
        assert len(ids(items_of("memory://bucket/photos/*.png"))) >= 1
        addresses = contents(items_of("memory://bucket/labels.csv", exclude=["group"]))
        assert [fsspec.open(address).open().read() for address in addresses] == [PIXEL, PIXEL]
    finally:
        memory.rm("/bucket", recursive=True)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path))
    ) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


def test_loopback_http(tmp_path: Path, server: str) -> None:
    touch(tmp_path, "photos/a.png", "photos/sub/b.jpg", "photos/readme.md")
    (tmp_path / "posts.csv").write_text("text\nHello\nthere\n", encoding="utf-8")
    source = items_of(f"{server}/photos/", extra=["folder"])
    assert ids(source) == ["a.png", "sub/b.jpg"]
    assert [fsspec.open(address).open().read() for address in contents(source)] == [PIXEL, PIXEL]
    assert contents(items_of(f"{server}/posts.csv")) == ["Hello", "there"]
    (tmp_path / "posts.txt").write_text("Hello\nthere\n", encoding="utf-8")
    assert contents(items_of(f"{server}/posts.txt")) == ["Hello", "there"]
    with pytest.raises(FileError, match="does not exist"):
        sources.open(f"{server}/none.csv")
