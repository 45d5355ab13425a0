"""Files are written completely or not at all."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from warpfrag.errors import FileError, WarpfragError
from warpfrag.files import check_writable, read_bytes, write_atomically

NOBODY = 65534


def test_a_file_is_written_as_usual(tmp_path):
    target = tmp_path / "new.txt"
    write_atomically(target, "é\n")
    usual = tmp_path / "usual"
    usual.touch()
    assert target.read_bytes() == "é\n".encode()
    assert target.stat().st_mode == usual.stat().st_mode
    target.chmod(0o640)
    write_atomically(str(target), b"\x00\xff")
    assert target.read_bytes() == b"\x00\xff"
    assert target.stat().st_mode & 0o777 == 0o640
    assert {path.name for path in tmp_path.iterdir()} == {"new.txt", "usual"}


def test_what_fails_halfway_leaves_the_old_file(tmp_path, monkeypatch):
    target = tmp_path / "page.html"
    target.write_text("old", encoding="utf-8")

    def full(self, content):
        with self.open("wb") as file:
            file.write(content[:3])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(FileError, match="cannot write '.*page.html': No space left on device"):
        write_atomically(target, b"new content")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert target.read_text(encoding="utf-8") == "old"


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "folder").mkdir()
    real, link = tmp_path / "folder" / "real", tmp_path / "link"
    real.write_bytes(b"old")
    link.symlink_to(Path("folder") / "real")
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    real.unlink()
    write_atomically(link, b"again")
    assert real.read_bytes() == b"again"


def test_pipes_and_devices_are_written_to(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_atomically(pipe, b"words")
    reader.join()
    assert got == [b"words"]
    assert pipe.is_fifo()
    write_atomically("/dev/null", b"words")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /dev/full")
def test_a_full_device_is_an_error():
    with pytest.raises(FileError, match="cannot write '/dev/full': No space left on device"):
        write_atomically("/dev/full", b"words")


@pytest.mark.parametrize("redirected", [False, True])
def test_dev_stdout_is_the_stream(tmp_path, redirected):
    code = "from warpfrag.files import write_atomically as w; w('/dev/stdout', 'words'); print(end='.', flush=True)"
    out = tmp_path / "out"
    with out.open("wb") as file:
        done = subprocess.run([sys.executable, "-c", code], stdout=file if redirected else -1, check=True)
    assert (out.read_bytes() if redirected else done.stdout) == (b".ords" if redirected else b"words.")  # the same file


@pytest.mark.parametrize("write", [check_writable, lambda path: write_atomically(path, b"")])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("none/x", "No such file or directory"),
        ("file/x", "Not a directory"),
        (".", "Is a directory"),
        ("x" * 300, "File name too long"),
        ("a\0b", "embedded null byte"),
        ("loop", "Symlink loop from|Too many levels of symbolic links"),
    ],
)
def test_a_path_that_cannot_be_written(tmp_path, monkeypatch, write, name, reason):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("loop").symlink_to("loop")
    with pytest.raises(WarpfragError, match=f"cannot write .*: ({reason})") as caught:
        write(name)
    assert isinstance(caught.value, OSError)
    assert {path.name for path in tmp_path.iterdir()} == {"file", "loop"}


@pytest.fixture
def folder():
    """Return a folder of a user whom permissions restrict: root may write everywhere."""
    with TemporaryDirectory() as name:
        is_root = os.geteuid() == 0
        if is_root:
            os.chown(name, NOBODY, -1)
            os.seteuid(NOBODY)
        yield Path(name)
        Path(name).chmod(0o755)
        if is_root:
            os.seteuid(0)


def test_permissions_are_kept_to(folder):
    target = folder / "file"
    target.write_bytes(b"old")
    target.chmod(0o444)
    with pytest.raises(FileError, match="Permission denied"):
        write_atomically(target, b"new")
    target.chmod(0o644)
    folder.chmod(0o555)
    write_atomically(target, b"new")
    assert target.read_bytes() == b"new"
    with pytest.raises(FileError, match="Permission denied"):
        check_writable(folder / "other")


@pytest.mark.parametrize("path", [None, 3, b"x", ["x"]])
def test_what_is_no_path_is_refused(path):
    for use in (check_writable, lambda path: write_atomically(path, b""), lambda path: read_bytes(path, 9)):
        with pytest.raises(FileError, match="expected the name of a file to (read|write), got "):
            use(path)


def test_a_file_is_read_within_bounds(tmp_path):
    (tmp_path / "nine").write_bytes(b"123456789")
    assert read_bytes(tmp_path / "nine", 9) == b"123456789"
    with pytest.raises(FileError, match="cannot read .*nine': it has more than 8 bytes"):
        read_bytes(tmp_path / "nine", 8)
    with pytest.raises(FileError, match="cannot read '/dev/zero': it has more than 100 bytes"):
        read_bytes("/dev/zero", 100)
    with pytest.raises(FileError, match="cannot read .*none': No such file or directory"):
        read_bytes(tmp_path / "none", 8)


def test_a_writable_path_is_left_as_it_is(tmp_path):
    (tmp_path / "old").write_bytes(b"old")
    for name in ("old", "new"):
        check_writable(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_bytes() == b"old"
