"""Arrays in files, held against NumPy's own."""

import os
import random

import numpy
import pytest

import sluice

SEED = int(os.environ.get("SEED", random.randrange(1 << 32)))


def test_npy_both_ways(fs, path):
    """NumPy reads what we wrote, and the other way round."""
    want = numpy.arange(5 * 7 * 3, dtype="<i4").reshape(5, 7, 3)
    with fs.create_array(path, want.shape, want.dtype) as a:
        assert a.shape == (5, 7, 3) and a.ndim == 3 and a.size == 105 and len(a) == 5
        assert a.nbytes == want.nbytes and a.order == "C" and not a[...].any()
        a[...] = want
    with fs.open(path, "rb") as f:
        assert (numpy.load(f) == want).all()
    with fs.open(path, "wb") as f:
        numpy.save(f, numpy.asfortranarray(want.astype(">f8")))
    with fs.array(path) as a:
        assert a.dtype == numpy.dtype(">f8") and a.order == "F"
        assert (a[...] == want).all() and a[...].flags.f_contiguous
        assert (numpy.asarray(a) == want).all()
        with pytest.raises(OSError):
            a[0] = 1  # it was opened to be read
        assert path in repr(a)


def indices(rng, shape):
    """A random index, as NumPy takes it."""
    index = []
    for count in shape:
        kind = rng.randrange(4)
        if kind == 0 and count:
            index.append(rng.randrange(-count, count))
        elif kind == 1:
            index.append(slice(None))
        else:
            ends = [rng.choice([None, rng.randrange(-count - 2, count + 3)]) for _ in range(2)]
            index.append(slice(*ends, rng.choice([None, 1, 2, 3, -1, -2])))
    if rng.random() < 0.3:
        at = rng.randrange(len(index) + 1)
        index[at:rng.randrange(at, len(index) + 1)] = [...]
    elif rng.random() < 0.3:
        del index[rng.randrange(len(index)) + 1:]
    return tuple(index) if len(index) != 1 or rng.random() < 0.5 else index[0]


def test_random_parts(fs, path):
    rng = random.Random(SEED)
    print("SEED", SEED)
    for turn in range(25):
        shape = tuple(rng.randrange(0 if turn % 8 == 7 else 1, 9) for _ in range(rng.randrange(1, 5)))
        kind = numpy.dtype(rng.choice(["<f8", ">i2", "u1", "S5", "<M8[us]",
                                       [("x", "<f4"), ("v", "<i8", (3,))]]))
        order = rng.choice("CF")
        model = numpy.zeros(shape, kind, order)
        with fs.create_array(path, shape, kind, order) as a:
            for _ in range(12):
                index = indices(rng, shape)
                part = model[index]
                fresh = numpy.frombuffer(rng.randbytes(part.size * kind.itemsize), kind)
                fresh = fresh.reshape(part.shape)
                if rng.random() < 0.3 and part.ndim > 1:
                    fresh = numpy.asfortranarray(fresh)
                model[index] = fresh
                a[index] = fresh
                index = indices(rng, shape)
                got = a[index]
                assert numpy.shape(got) == model[index].shape, (index, shape)
                same = [numpy.asarray(one, kind).tobytes() for one in (got, model[index])]
                assert same[0] == same[1], (index, shape)
            assert a[...].tobytes() == model.tobytes()


def test_memory_with_strides(fs, path):
    with fs.create_array(path, (6, 8), "<i4") as a:
        a[...] = numpy.arange(48).reshape(6, 8)  # of another dtype: it is converted
        room = numpy.full((12, 20), -1, "<i4")
        into = room[10::-2, 2:18:2]
        assert a.read(out=into) is into
        assert (into == numpy.arange(48).reshape(6, 8)).all()
        assert (room[1::2] == -1).all() and (room[:, 3::2] == -1).all()
        shared = fs.empty((6, 8), "<i4")
        assert (a.read(out=shared) == into).all()
        a[2] = 7  # one number for all of a row
        a[:, 1] = a[:, 2] + 1
        assert (a[2, 2:] == 7).all() and (a[:, 1] == a[:, 2] + 1).all()
        assert a[3, -1] == 31 and isinstance(a[3, 3], numpy.int32)
        for bad in (numpy.empty((6, 7), "<i4"), numpy.empty((6, 8), "<i8"), [0]):
            with pytest.raises(ValueError):
                a.read(out=bad)
        frozen = numpy.empty((6, 8), "<i4")
        frozen.flags.writeable = False
        with pytest.raises(ValueError):
            a.read(out=frozen)
        with pytest.raises(ValueError):
            a[0] = numpy.zeros(3)
        a.sync()


def test_raw(fs, path):
    want = numpy.arange(12, dtype=">u2").reshape(3, 4)
    fs.write_bytes(path, b"\xff" * 10 + want.tobytes())
    with fs.raw_array(path, want.shape, want.dtype, 10, mode="r+") as a:
        assert a.offset == 10 and (a[...] == want).all()
        a[1, ::2] = 9
    with fs.raw_array(path, 12, ">u2", 10) as a:
        assert a.shape == (12,) and a[4] == 9 and a[6] == 9 and a[5] == 5


def cut(whole, tiles, at):
    """What a tile should hold: zeroes outside of the array."""
    low, high = tiles.box(at)
    wide = numpy.pad(whole, [(max(0, -a), max(0, b - n)) for a, b, n in zip(low, high, whole.shape)])
    return wide[tuple(slice(max(a, 0), max(a, 0) + b - a) for a, b in zip(low, high))]


def test_tiles(fs, path):
    whole = numpy.arange(10 * 9, dtype="<f8").reshape(10, 9)
    with fs.create_array(path, whole.shape) as a:
        tiles = a.tiles((4, 4))
        assert tiles.grid == (3, 3) and len(list(tiles)) == 9
        for at in tiles:
            tiles.write(at, cut(whole, tiles, at))
        assert (a[...] == whole).all()
        ghosts = a.tiles((4, 4), (1, 2))
        assert ghosts.box((1, 1)) == ((3, 2), (9, 10))
        for at in ghosts:
            assert (ghosts.read(at) == cut(whole, ghosts, at)).all(), at
        around = a.tiles((5, 3), (1, 1), wrap=True)
        padded = numpy.pad(whole, 1, mode="wrap")
        for i, j in around:
            want = padded[5 * i:5 * i + 7, 3 * j:3 * j + 5]
            assert (around.read((i, j)) == want).all(), (i, j)
        tiles.write((0, 0), -1)
        assert (a[:4, :4] == -1).all() and a[4, 4] == whole[4, 4]
        for wrong in ((3, 0), (0,), (-1, 0)):
            with pytest.raises((OSError, IndexError)):
                tiles.read(wrong)
        with pytest.raises(ValueError):
            a.tiles((4,))


def test_fortran_tiles(fs, path):
    whole = numpy.arange(60, dtype="<i8").reshape(6, 10)
    with fs.create_array(path, whole.shape, "<i8", "F") as a:
        a[...] = whole
        tiles = a.tiles((4, 3), (1, 0))
        for at in tiles:
            assert (tiles.read(at) == cut(whole, tiles, at)).all(), at
        plain = a.tiles((4, 3))
        for at in plain:
            plain.write(at, -cut(whole, plain, at))
        assert (a[...] == -whole).all()


def test_what_cannot_be(fs, path):
    with pytest.raises(TypeError):
        fs.create_array(path, 3, object)
    assert not fs.exists(path)
    with pytest.raises(ValueError):
        fs.create_array(path, 3, order="K")
    with pytest.raises(ValueError):
        fs.array(path, "w")
    with pytest.raises(FileNotFoundError):
        fs.array(path)
    with pytest.raises(OSError):
        fs.create_array(path, (1 << 40, 1 << 40))
    assert not fs.exists(path)
    fs.write_bytes(path, b"no array")
    for shape in ((1 << 40, 1 << 40), -1, (1,) * 65):
        with pytest.raises(OSError):
            fs.create_array(path, shape)
    assert fs.read_bytes(path) == b"no array"
    with pytest.raises(OSError):
        fs.array(path)
    with fs.create_array(path, (3, 4)) as a:
        for wrong in ((0, 0, 0), (..., ...), 3, -4, (0, 1.5), (None,), "x", [0, 1]):
            with pytest.raises(IndexError):
                a[wrong]
    with pytest.raises(ValueError):
        a[0]
    a.close()  # twice is allowed
    with fs.create_array(path, ()) as a:
        a[()] = 3
        assert a[()] == 3 and a.size == 1
        with pytest.raises(TypeError):
            len(a)


def test_long_dtype(fs, path):
    """A dtype whose name is longer than what C tells is read from the header."""
    kind = numpy.dtype([(f"a_rather_long_name_{i}", "<f4") for i in range(20)])
    with fs.create_array(path, 3, kind) as a:
        a[1] = numpy.ones((), kind)
    with fs.array(path) as a:
        assert a.dtype == kind and a[1]["a_rather_long_name_19"] == 1


def test_is_exported():
    assert sluice.Array.__module__ == "sluice._array"
