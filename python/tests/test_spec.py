"""sluice:// in fsspec, and in what stands on it."""

import os

import pytest

fsspec = pytest.importorskip("fsspec")

from sluice.spec import register  # noqa: E402

register()
HOST = os.environ["SLUICE_URL"].rstrip("/")


def test_urls(path):
    with fsspec.open(HOST + path, "wt") as f:
        f.write("one\ntwo\n")
    with fsspec.open("sluice://" + path) as f:  # the cluster of the environment
        assert f.read() == b"one\ntwo\n"
    fs, name = fsspec.core.url_to_fs(HOST + path)
    assert name == path and fs.cat(name) == b"one\ntwo\n"
    assert fs.cat_file(name, 2, -2) == b"e\ntw" and fs.cat_file(name, -3) == b"wo\n"
    assert fsspec.filesystem("sluice", where=HOST) is fs


def test_file_system(path):
    fs = fsspec.filesystem("sluice", where=HOST)
    fs.makedirs(path + "/a/b")
    fs.pipe({path + "/a/x": b"1" * 10, path + "/a/b/y": b"2" * 20})
    assert fs.ls(path + "/a", detail=False) == [path + "/a/b", path + "/a/x"]
    assert fs.info(path + "/a/x")["size"] == 10 and fs.isdir(path + "/a/b")
    assert sorted(fs.find(path)) == [path + "/a/b/y", path + "/a/x"]
    assert fs.glob(path + "/a/*/y") == [path + "/a/b/y"]
    assert fs.du(path) == 30
    assert [len(files) for _, _, files in fs.walk(path)] == [0, 1, 1]
    fs.cp(path + "/a/x", path + "/z")
    fs.mv(path + "/z", path + "/w")
    assert fs.cat(path + "/w") == b"1" * 10 and not fs.exists(path + "/z")
    before = fs.ukey(path + "/w")
    fs.touch(path + "/w")
    assert fs.size(path + "/w") == 0 and fs.ukey(path + "/w") != before
    assert fs.modified(path + "/w").year > 2000
    with pytest.raises(FileNotFoundError):
        fs.open(path + "/none")
    with pytest.raises(OSError):
        fs.rm(path)
    fs.rm(path, recursive=True)
    assert not fs.exists(path)


def test_patterns_and_lists(path):
    fs = fsspec.filesystem("sluice", where=HOST)
    fs.makedirs(path + "/a")
    fs.pipe({f"{path}/{i}.{kind}": b"1" for i in range(3) for kind in ("x", "y")})
    fs.rm(path + "/*.y")
    assert fs.ls(path, detail=False) == [path + "/0.x", path + "/1.x", path + "/2.x", path + "/a"]
    fs.mv(path + "/0.x", path + "/a")
    fs.mv(path + "/1.x", path + "/a/")
    assert fs.ls(path + "/a", detail=False) == [path + "/a/0.x", path + "/a/1.x"]
    fs.mv(path + "/a/*.x", path)
    assert fs.ls(path, detail=False) == [path + "/0.x", path + "/1.x", path + "/2.x", path + "/a"]
    with pytest.raises(OSError):
        fs.mv([path + "/0.x", path + "/1.x"], path + "/2.x")
    with pytest.raises(FileNotFoundError):
        fs.rm(path + "/*.z")
    fs.rm([path + "/0.x", path + "/1.x"])
    fs.pipe_file(path + "/[b]*", b"2")  # a name, not a pattern
    fs.rm(path + "/[b]*")
    assert fs.ls(path, detail=False) == [path + "/2.x", path + "/a"]
    with pytest.raises(FileExistsError):
        fs.pipe_file(path + "/2.x", b"2", mode="create")
    assert fs.cat(path + "/2.x") == b"1"


def test_put_and_get(path, tmp_path):
    fs = fsspec.filesystem("sluice", where=HOST)
    (tmp_path / "here").write_bytes(os.urandom(3 << 20))
    fs.put(str(tmp_path / "here"), path)
    fs.get(path, str(tmp_path / "back"))
    assert (tmp_path / "here").read_bytes() == (tmp_path / "back").read_bytes()


def test_pandas(path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": range(1000), "b": [f"text {i}" for i in range(1000)]})
    frame.to_csv(HOST + path, index=False)
    assert pandas.read_csv(HOST + path).equals(frame)


def test_dask(path):
    """Many files, read and written by threads of dask at once."""
    pytest.importorskip("dask", reason="there is no dask")
    import dask
    import dask.bag

    with dask.config.set(scheduler="threads"):
        lines = [f"line {i}" for i in range(1000)]
        names = dask.bag.from_sequence(lines, npartitions=7).to_textfiles(HOST + path + "/*.txt")
        assert len(names) == 7
        back = dask.bag.read_text("sluice://" + path + "/*.txt", blocksize=400)
        assert back.npartitions > 7  # a file is read in pieces
        assert [line.strip() for line in back.compute()] == lines


def test_dask_frames(path):
    pandas = pytest.importorskip("pandas")
    frames = pytest.importorskip("dask.dataframe", reason="there is no dask.dataframe")
    frame = pandas.DataFrame({"a": range(1000), "b": [i % 7 for i in range(1000)]})
    frames.from_pandas(frame, npartitions=4).to_csv(HOST + path + "/*.csv", index=False)
    back = frames.read_csv(HOST + path + "/*.csv")
    assert back.groupby("b").a.sum().compute().equals(frame.groupby("b").a.sum())


def test_pyarrow(path):
    pytest.importorskip("pyarrow", reason="there is no pyarrow")
    from pyarrow import fs as afs
    from pyarrow import parquet, table

    there = afs.PyFileSystem(afs.FSSpecHandler(fsspec.filesystem("sluice", where=HOST)))
    t = table({"a": list(range(1000))})
    parquet.write_table(t, path, filesystem=there)
    assert parquet.read_table(path, filesystem=there).equals(t)


def test_numpy(path):
    np = pytest.importorskip("numpy")
    fs = fsspec.filesystem("sluice", where=HOST)
    a = np.arange(10000.0).reshape(100, 100)
    with fs.open(path, "wb") as f:
        np.save(f, a)
    with fs.open(path) as f:
        assert (np.load(f) == a).all()
