"""Files and names."""

import ctypes
import errno
import gc
import io
import multiprocessing
import os
import random
import threading

import pytest

import sluice
from sluice import _lib


def test_structures_have_the_sizes_of_c():
    sizes = {_lib.Options: 80, _lib.CLayout: 80, _lib.CAccess: 32, _lib.CMemory: 40, _lib.Parent: 24,
             _lib.Hints: 16, _lib.Request: 72, _lib.CCompletion: 128, _lib.CStat: 104,
             _lib.Dirent: 360, _lib.Statfs: 64}
    for kind, size in sizes.items():
        assert ctypes.sizeof(kind) == size, kind


def test_open_is_like_the_built_in(fs, path):
    with fs.open(path, "w") as f:
        assert isinstance(f, io.TextIOWrapper)
        f.write("one\ntwo\nthree\n")
    with fs.open(path) as f:
        assert list(f) == ["one\n", "two\n", "three\n"]
    with fs.open(path, "ab") as f:
        f.write(b"four\n")
    with fs.open(path, "rb") as f:
        assert isinstance(f, io.BufferedIOBase) and f.name == path
        assert f.readlines()[-1] == b"four\n"
    with fs.open(path, "r+b") as f:
        f.seek(4)
        f.write(b"TWO")
        f.seek(0)
        assert f.read() == b"one\nTWO\nthree\nfour\n"
        f.truncate(3)
    assert fs.stat(path).size == 3
    with pytest.raises(FileExistsError):
        fs.open(path, "x")
    with pytest.raises(ValueError):
        fs.open(path, "rw")
    with pytest.raises(io.UnsupportedOperation):
        fs.open(path, "rb", buffering=0).write(b"x")
    with pytest.raises(io.UnsupportedOperation):
        fs.open(path, "wb", buffering=0).read(1)


def test_random_calls_against_a_bytes_io(fs, path):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rnd = random.Random(seed)
    model = io.BytesIO()
    with fs.open(path, "w+b") as f:
        for _ in range(400):
            what = rnd.randrange(5)
            if what == 0:
                data = rnd.randbytes(rnd.randrange(200000))
                assert f.write(data) == model.write(data)
            elif what == 1:
                n = rnd.randrange(300000)
                assert f.read(n) == model.read(n)
            elif what == 2:
                at = rnd.randrange(500000)
                assert f.seek(at) == model.seek(at)
            elif what == 3:
                assert f.tell() == model.tell()
            else:
                size = rnd.randrange(500000)
                f.truncate(size)
                f.flush()
                model.truncate(size)
                if len(model.getvalue()) < size:  # BytesIO does not grow
                    at = model.tell()
                    model.seek(0, 2)
                    model.write(bytes(size - len(model.getvalue())))
                    model.seek(at)
        f.flush()
        assert fs.read_bytes(path) == model.getvalue()


def test_offsets(fs, path):
    with fs.file(path, "w+b") as f:
        assert f.pwrite(b"abcdef", 10) == 6
        assert f.pread(100, 8) == b"\0\0abcdef"
        assert f.pread(5, 100) == b""
        into = bytearray(4)
        assert f.pread_into(into, 12) == 4 and into == b"cdef"
        assert f.pread_into(memoryview(into)[1:3], 10) == 2 and into == b"cabf"
        assert f.pread_into(bytearray(), 0) == 0
        assert f.append(b"xyz") == 16
        assert f.tell() == 0
        f.sync()
        assert f.stat().size == 19
        f.reserve(0, 1 << 20)
        with pytest.raises(OSError) as e:
            f.pread(1, -1)
        assert e.value.errno == errno.EINVAL
        with pytest.raises((BufferError, TypeError)):
            f.pread_into(b"a constant", 0)
    with pytest.raises(ValueError):
        f.read(1)
    with pytest.raises(ValueError):
        f.pread(1, 0)
    f.close()


def test_names(fs, path):
    fs.makedirs(path + "/a/b")
    with pytest.raises(FileExistsError):
        fs.makedirs(path + "/a/b")
    fs.makedirs(path + "/a/b", exist_ok=True)
    fs.write_bytes(path + "/a/file", b"x" * 1000)
    fs.symlink("file", path + "/a/link")
    assert fs.readlink(path + "/a/link") == "file"
    fs.link(path + "/a/file", path + "/a/twin")
    found = {e.name: e.stat for e in fs.scandir(path + "/a")}
    assert set(found) == {"b", "file", "link", "twin"}
    assert found["b"].is_dir and found["file"].is_file and found["link"].is_symlink
    assert found["file"].size == 1000 and found["file"].nlink == 2
    fs.rename(path + "/a/twin", path + "/a/other")
    with pytest.raises(FileExistsError):
        fs.rename(path + "/a/other", path + "/a/b", replace=False)
    fs.chmod(path + "/a/other", 0o600)
    fs.utime(path + "/a/other", (1000.25, 2000.5))
    s = fs.stat(path + "/a/other")
    assert (s.mode & 0o777, s.mtime) == (0o600, 2000.5)
    with pytest.raises(IsADirectoryError):
        fs.remove(path + "/a")
    with pytest.raises(OSError) as e:
        fs.rmdir(path + "/a")
    assert e.value.errno == errno.ENOTEMPTY
    fs.remove(path + "/a/other")
    fs.rmtree(path)
    assert not fs.exists(path)
    with pytest.raises(FileNotFoundError) as e:
        fs.stat(path)
    assert e.value.filename == path and "client.Stat" in str(e.value)
    with pytest.raises(ValueError):
        fs.stat("/a\0b")
    assert fs.free_bytes() > 0


def test_layout(fs, path):
    with fs.file(path, "wb", layout=sluice.Layout(unit=1 << 16, width=1)) as f:
        assert f.layout()[:2] == (1 << 16, 1)
    assert fs.layout(path)[:2] == (1 << 16, 1)


def test_locks(fs, path):
    with fs.file(path, "w+b") as a, fs.file(path, "r+b") as b:
        assert a.lock(0, 10)
        assert not b.lock(5, 10, wait=False)
        assert b.lock(10, 10, wait=False)
        a.unlock(0, 10)
        assert b.lock(0, 10, wait=False)


def test_memory_outlives_its_connection(path):
    other = sluice.connect()
    view = other.alloc(1 << 16)
    with other.file(path, "w+b") as f:
        view[:4] = b"data"
        f.pwrite(view, 0)
        view[:4] = b"\0\0\0\0"
        assert f.pread_into(view, 0) == 1 << 16
    other.close()
    assert bytes(view[:4]) == b"data"  # it is there as long as somebody has it
    del view
    gc.collect()
    assert other._lent == 0
    with pytest.raises(ValueError):
        other.alloc(10)
    with pytest.raises(OSError):
        other.stat("/")
    other.close()


def test_connection_closes_its_files(path):
    with sluice.connect() as other:
        f = other.file(path, "wb")
        f.write(b"x")
    with pytest.raises(OSError) as e:
        f.write(b"y")
    assert e.value.errno == errno.EBADF
    f.close()


def test_threads(fs, path):
    with fs.file(path, "w+b") as f:
        def work(i):
            mine, back = bytes([i]) * 5000, bytearray(5000)
            for _ in range(50):
                f.pwrite(mine, i * 5000)
                assert f.pread_into(back, i * 5000) == 5000
                assert back == mine
            done.append(i)

        done = []
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert len(done) == 8


def _child(path, q):
    try:
        sluice.connect()
    except OSError as err:
        q.put(err.errno)


def test_fork(fs, path):
    context = multiprocessing.get_context("fork")
    q = context.SimpleQueue()
    p = context.Process(target=_child, args=(path, q))
    p.start()
    assert q.get() == errno.ENOTCONN
    p.join()
    assert p.exitcode == 0
    assert fs.exists("/")
    assert os.system("exit 3") >> 8 == 3
