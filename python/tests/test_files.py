"""Files and names."""

import ctypes
import errno
import gc
import io
import multiprocessing
import os
import random
import sys
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
    with pytest.raises(ValueError):
        f.read(1)
    with pytest.raises(ValueError):
        f.pread(1, 0)
    f.close()


def test_buffers(fs, path):
    with fs.file(path, "w+b") as f:
        assert f.pwrite(memoryview(b"0123456789").cast("H"), 0) == 10
        words = memoryview(bytearray(8)).cast("H", (2, 2))
        assert f.pread_into(words, 2) == 8 and bytes(words) == b"23456789"
        assert f.pwrite(b"", 0) == 0
        with pytest.raises(BufferError, match="read_list"):
            f.pread_into(memoryview(bytearray(8))[::2], 0)
        with pytest.raises(BufferError, match="write_list"):
            f.pwrite(memoryview(b"01234567")[::2], 0)
        for constant in (b"a constant", memoryview(b"a constant")):
            with pytest.raises(BufferError):
                f.pread_into(constant, 0)
        for wrong in ("text", None, 7):
            with pytest.raises(TypeError):
                f.pread_into(wrong, 0)
            with pytest.raises(TypeError):
                f.pwrite(wrong, 0)
        with pytest.raises(TypeError):
            f.pwrite(b"x", 1.5)
        with pytest.raises(OverflowError):
            f.pwrite(b"x", 1 << 63)
        with pytest.raises(TypeError):
            f._calls.pread(f._handle, bytearray(1))
        with pytest.raises(OSError) as e:
            f._calls.pread(f._fs._handle, bytearray(1), 0) and f._failed(errno.EBADF)
        assert e.value.errno == errno.EBADF
        assert f.stat().size == 10
        held = bytearray(4)
        f.pread_into(held, 0)
        held += b"more"  # nothing holds it any more


def test_arrays(fs, path):
    np = pytest.importorskip("numpy")
    a = np.arange(24, dtype="int32").reshape(4, 6)
    with fs.file(path, "w+b") as f:
        assert f.pwrite(a, np.int64(0)) == 96
        b = np.zeros_like(a)
        assert f.pread_into(b, 0) == 96 and (a == b).all()
        assert f.pread_into(b[1:3], 0) == 48 and (b[1:3] == a[:2]).all()
        for gaps in (b[:, 1:3], b.T):
            with pytest.raises(BufferError, match="read_list"):
                f.pread_into(gaps, 0)
        b.flags.writeable = False
        with pytest.raises(BufferError):
            f.pread_into(b, 0)


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


def test_others_run_during_a_call(fs, path):
    """The interpreter takes its lock from nobody here: who is to run needs a call that gives it."""
    fs.write_bytes(path, bytes(100))
    calls = {
        "pread": lambda f: f.pread_into(bytearray(8), 0),
        "pwrite": lambda f: f.pwrite(bytes(8), 0),
        "append": lambda f: f.append(bytes(8)),
    }
    interval = sys.getswitchinterval()
    with fs.file(path, "r+b") as f:
        for name, call in calls.items():
            may, has = threading.Lock(), []
            may.acquire()

            def other():
                with may:
                    has.append(True)

            t = threading.Thread(target=other)
            t.start()
            sys.setswitchinterval(1000)
            try:
                may.release()
                for _ in range(5000):
                    call(f)
                    if has:
                        break
                ran = bool(has)
            finally:
                sys.setswitchinterval(interval)
            t.join()
            assert ran, name


def test_buffers_are_held_during_calls(fs, path):
    """Who resizes a buffer that is being read into is refused, or comes before or after it."""
    fs.write_bytes(path, b"x" * (1 << 20))
    buffer, end, refused = bytearray(1 << 20), threading.Event(), []

    def resize():
        while not end.is_set():
            try:
                buffer.extend(b"y")
                buffer.pop()
            except BufferError:
                refused.append(True)

    t = threading.Thread(target=resize)
    t.start()
    try:
        with fs.file(path) as f:
            for _ in range(200):
                assert f.pread_into(buffer, 0) == 1 << 20
    finally:
        end.set()
        t.join()
    assert refused and buffer[:1 << 20] == b"x" * (1 << 20)


def _child(inherited, q):
    try:
        sluice.connect()
    except OSError as err:
        first = err.errno
    try:
        inherited.pread_into(bytearray(8), 0)
    except OSError as err:
        q.put((first, err.errno))


def test_fork(fs, path):
    context = multiprocessing.get_context("fork")
    q = context.SimpleQueue()
    fs.write_bytes(path, bytes(100))
    with fs.file(path) as f:
        p = context.Process(target=_child, args=(f, q))
        p.start()
        assert q.get() == (errno.ENOTCONN, errno.ENOTCONN)
        p.join()
        assert p.exitcode == 0
        assert f.pread(8, 0) == bytes(8)
    assert fs.exists("/")
    assert os.system("exit 3") >> 8 == 3
