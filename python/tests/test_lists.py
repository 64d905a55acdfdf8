"""Lists, vectors, arrays, queues."""

import os
import random
import select
import subprocess
import sys

import pytest

import sluice

np = pytest.importorskip("numpy")


def test_array_without_copies(fs, path):
    a = fs.empty((1000, 300), "f8")
    a[:] = np.arange(300000).reshape(a.shape)
    with fs.file(path, "w+b") as f:
        assert f.pwrite(a, 0) == a.nbytes
        b = fs.empty(a.shape, a.dtype)
        assert f.pread_into(b, 0) == b.nbytes
        assert (a == b).all()
        c = np.empty(a.shape, a.dtype)
        assert f.readinto(c) == c.nbytes and (a == c).all()
        assert f.pread_into(np.empty((0, 3)), 0) == 0
        with pytest.raises((BufferError, ValueError)):
            f.pread_into(c[:, ::2], 0)
        with pytest.raises(BufferError):
            f.pwrite(c[:, ::2], 0)


def test_tile_into_an_array_with_strides(fs, path):
    whole = np.arange(200 * 100, dtype="i4").reshape(200, 100)
    with fs.file(path, "w+b") as f:
        f.pwrite(whole, 0)
        framed = np.zeros((52, 34), "i4")
        rows = sluice.Vector((20 * 100 + 10) * 4, 30 * 4, [(50, 400)])
        assert f.read_list(framed[1:-1, 2:-2], rows, parents=[framed]) == 50 * 30 * 4
        assert (framed[1:-1, 2:-2] == whole[20:70, 10:40]).all()
        assert framed[0].sum() == 0 and framed[:, :2].sum() == 0
        assert f.write_list(-framed[1:-1, 2:-2], rows) == 50 * 30 * 4
        back = np.frombuffer(f.pread(whole.nbytes, 0), "i4").reshape(whole.shape)
        assert (back[20:70, 10:40] == -whole[20:70, 10:40]).all() and (back[:20] == whole[:20]).all()
        with pytest.raises(ValueError):
            f.read_list(framed[::-1], rows)


def test_random_lists_against_a_model(fs, path):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rnd = random.Random(seed)

    def cut(n, end):
        pieces, at, spare = [], 0, end - n
        while n:
            gap, size = rnd.randrange(spare // 4 + 1), rnd.randrange(1, min(n, 3000) + 1)
            pieces.append((at + gap, size))
            at, n, spare = at + gap + size, n - size, spare - gap
        rnd.shuffle(pieces)
        return pieces

    end = 1 << 21
    model, memory = bytearray(rnd.randbytes(end)), bytearray(1 << 20)
    with fs.file(path, "w+b") as f, sluice.Queue(fs, 4) as queue:
        f.pwrite(model, 0)
        for _ in range(40):
            n = rnd.randrange(1, 100000)
            inside, at = cut(n, len(memory)), cut(n, end)
            writes = rnd.random() < 0.5
            if writes:
                memory[:] = rnd.randbytes(len(memory))
                stream = b"".join(memory[o:o + k] for o, k in inside)
            else:
                stream = b"".join(model[o:o + k] for o, k in at)
            want = memory if writes else bytearray(memory)
            to, pieces, pos = (model, at, 0) if writes else (want, inside, 0)
            for o, k in pieces:
                to[o:o + k] = stream[pos:pos + k]
                pos += k
            if rnd.random() < 0.5:
                at = np.array(at, "i8")
            if rnd.random() < 0.5:
                tag = (queue.write_list if writes else queue.read_list)(f, memory, at, inside)
                done = queue.complete()
                assert done == [(tag, n, None)]
            else:
                assert (f.write_list if writes else f.read_list)(memory, at, inside) == n
            assert memory == want
        assert f.pread(end, 0) == model


def test_lists_that_make_no_sense(fs, path):
    with fs.file(path, "w+b") as f:
        f.pwrite(bytes(100), 0)
        b = bytearray(10)
        for access, memory in [([(0, 9)], None), ([(-1, 10)], None), ([(0, 10)], [(1, 10)]),
                               ([(0, 10)], [(-1, 10)]), ([(0, 10)], sluice.Vector(0, 5, [(2, 6)])),
                               (sluice.Vector(0, 2, [(5, -3)]), None)]:
            with pytest.raises((OSError, ValueError)):
                f.read_list(b, access, memory)
        with pytest.raises(OSError):
            f.read_list(b, sluice.Vector(0, 1, [(1 << 30, 1)]))
        assert f.read_list(b, [(95, 10)]) == 5


def test_numbers_are_not_cut_off(fs, path):
    """What C cannot hold is refused, and does not become another number."""
    much = 1 << 64
    with fs.file(path, "w+b") as f, sluice.Queue(fs, 4) as queue:
        f.pwrite(b"x" * 100, 0)
        b = bytearray(4)
        for call in [lambda: f.truncate(much), lambda: fs.truncate(path, much + 5),
                     lambda: f.reserve(much, much + 5), lambda: f.lock(much, 1),
                     lambda: f.pread(4, much), lambda: f.pwrite(b, much),
                     lambda: f.read_list(b, [(much, 4)]), lambda: f.write_list(b, [(0, much + 4)]),
                     lambda: f.read_list(b, sluice.Vector(much, 4)),
                     lambda: f.write_list(b, sluice.Vector(0, 2, [(2, much + 4)])),
                     lambda: f.read_list(b, [(0, 4)], [(much, 4)]),
                     lambda: queue.read(f, b, much), lambda: sluice.Queue(fs, (1 << 32) + 1),
                     lambda: fs.set_layout(path, sluice.Layout(unit=much + 65536)),
                     lambda: fs.alloc(much + 4096), lambda: sluice.connect(buffers=much),
                     lambda: sluice.connect(wait=-1)]:
            with pytest.raises((OverflowError, ValueError)):
                call()
        assert f.stat().size == 100 and f.pread(100, 0) == b"x" * 100
        with pytest.raises(OSError):
            fs.alloc(1 << 46)  # more than any host has
        assert queue.complete(timeout=float("inf")) == []


def test_a_parent_of_which_a_part_may_be_registered(fs, path):
    whole = np.zeros((100, 100), "u1")
    with fs.file(path, "w+b") as f:
        f.pwrite(bytes(range(100)), 0)
        rows = sluice.Vector(0, 10, [(10, 10)])
        assert f.read_list(whole[:10, 5:15], rows, parents=[(whole, 500)]) == 100
        assert (whole[:10, 5:15].ravel() == np.arange(100)).all()
        with pytest.raises(OverflowError):
            f.read_list(whole[:10, 5:15], rows, parents=[(whole, -1)])


def test_a_queue_that_is_forgotten(path):
    """Buffers live as long as something writes to them, whoever refers to them."""
    script = """
import gc, sluice, sys
fs = sluice.connect()
with fs.file(sys.argv[1], "w+b") as f:
    f.pwrite(b"x" * (8 << 20), 0)
    for _ in range(30):
        queue = sluice.Queue(fs, 8)
        for i in range(8):
            queue.read(f, bytearray(1 << 20), i << 20)
        del queue
        others = [bytes([7]) * (1 << 20) for _ in range(8)]
        assert all(o == bytes([7]) * (1 << 20) for o in others)
print("well")
"""
    out = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True,
                         env=dict(os.environ, PYTHONPATH=os.path.dirname(sluice.__path__[0])))
    assert out.returncode == 0 and out.stdout == "well\n", out


def test_queue(fs, path):
    blocks = [fs.alloc(1 << 16) for _ in range(16)]
    with fs.file(path, "w+b") as f, sluice.Queue(fs, 8) as queue:
        for i, b in enumerate(blocks):
            b[:] = bytes([i]) * len(b)
        todo, tags = list(enumerate(blocks)), {}
        finished = 0
        while finished < len(blocks):
            while todo:
                tag = queue.write(f, todo[0][1], todo[0][0] << 16)
                if tag is None:
                    break
                tags[tag] = todo.pop(0)[0]
            assert select.select([queue], [], [], 60)[0]
            for c in queue.complete():
                assert c.error is None and c.result == 1 << 16
                finished += 1
        assert len(tags) == 16
        tag = queue.sync(f)
        assert queue.complete() == [(tag, 0, None)]
        into = bytearray(1 << 16)
        queue.read(f, into, 3 << 16)
        assert queue.complete(timeout=60)[0].result == 1 << 16 and into == blocks[3]
        queue.write(f, into, -1)
        failed = queue.complete()[0]
        assert failed.result < 0 and isinstance(failed.error, OSError)
        assert queue.complete(least=0) == []
