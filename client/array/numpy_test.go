package array_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/client/array"
)

// python finds one that has NumPy: Debian's own knows Debian's packages.
func python(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(name, "-c", "import numpy").Run() == nil {
			return name
		}
	}
	t.Fatal("no python3 with numpy: run make deps")
	return ""
}

// numpyTypes are all kinds of elements, as NumPy takes them.
const numpyTypes = `['|b1', '|i1', '|u1', '<i2', '>i4', '<u8', '<f2', '>f4', '<f8',
 '<f16', '<c8', '>c16',
 '|S5', '<U4', '>U2', '|V3', '<m8[ns]', '>M8[25s]',
 [('x', '<f4'), ('y', '>i2', (2, 3)), ('n', [('a', '|b1'), ('b', '<U2')])],
 [(('title', 'name'), '<f8'), ('', '|V4'), ('größe', '<i4')], [('大', '<i4')]]`

// makePy writes one file of each type, order and version, and beside it the bytes of some slices.
const makePy = `
import sys, numpy as np
from numpy.lib import format
out = sys.argv[1]
rng = np.random.default_rng(int(sys.argv[2]))
def fits(dtype, version):
    return version == (3, 0) or '大' not in str(dtype)
i = 0
for d in ` + numpyTypes + `:
    dtype = np.dtype(format.descr_to_dtype(d))
    for shape in [(), (0,), (7,), (5, 6), (3, 4, 5)]:
        n = int(np.prod(shape))
        raw = rng.integers(97, 122, size=n * dtype.itemsize, dtype=np.uint8).tobytes()
        if 'U' in str(d):
            raw = bytes(n * dtype.itemsize)
        a = np.frombuffer(raw, dtype=dtype).reshape(shape) if n else np.zeros(shape, dtype)
        order = 'CF'[i % 2]
        version = [(1, 0), (2, 0), (3, 0)][i % 3]
        if not fits(dtype, version):
            version = (3, 0)
        a = np.array(a, order=order)
        with open(f'{out}/{i}.npy', 'wb') as f:
            format.write_array(f, a, version=version, allow_pickle=False)
        v = a.view(f'V{dtype.itemsize}')  # NumPy copies no padding between fields
        open(f'{out}/{i}.all', 'wb').write(v.tobytes())
        if len(shape) == 2:
            open(f'{out}/{i}.part', 'wb').write(v[::-2, 1:5].tobytes())
        i += 1
print(i)
`

// checkPy reads what was written by us, and compares.
const checkPy = `
import sys, numpy as np
d = sys.argv[1]
for i in range(int(sys.argv[2])):
    a, b = np.load(f'{d}/{i}.npy'), np.load(f'{d}/{i}.ours.npy')
    assert a.dtype == b.dtype, (i, a.dtype, b.dtype)
    assert a.shape == b.shape, (i, a.shape, b.shape)
    assert a.dtype.names == b.dtype.names, i
    raw = f'V{a.dtype.itemsize}'
    assert a.view(raw).tobytes() == b.view(raw).tobytes(), i
    assert a.flags.f_contiguous == b.flags.f_contiguous, i
print('same')
`

// NumPy's files are read as NumPy reads them, and NumPy reads ours as its own: all plain types,
// both orders, all versions of the format.
func TestNumPy(t *testing.T) {
	py, dir, fs := python(t), t.TempDir(), cluster(t)
	var count int
	for _, seed := range seeds(t, 1) {
		out, err := exec.Command(py, "-c", makePy, dir, fmt.Sprint(seed)).CombinedOutput()
		if _, serr := fmt.Sscan(string(out), &count); err != nil || serr != nil || count < 100 {
			t.Fatalf("%v, %v: %s", err, serr, out)
		}
	}
	for i := range count {
		fromNumPy(t, fs, filepath.Join(dir, fmt.Sprint(i)))
	}
	out, err := exec.Command(py, "-c", checkPy, dir, fmt.Sprint(count)).CombinedOutput()
	if err != nil || string(out) != "same\n" {
		t.Fatalf("NumPy does not read ours: %v: %s", err, out)
	}
}

// fromNumPy brings a file of NumPy's into the cluster, compares what is read of it, and writes it
// once more by ourselves, back to this host.
func fromNumPy(t *testing.T, fs *client.FS, name string) {
	t.Helper()
	ctx := context.Background()
	theirs := load(t, fs, name+".npy")
	a, err := array.Open(ctx, theirs)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	same := func(v array.View, file string) {
		t.Helper()
		want, err := os.ReadFile(file)
		got := make([]byte, v.Bytes())
		if err == nil {
			err = v.Read(ctx, got, array.RowMajor)
		}
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: %x, want %x, %v", file, got, want, err)
		}
	}
	same(a.All(), name+".all")
	if len(a.Shape()) == 2 {
		part, err := a.All().Slice(array.Step(-2), array.Range(1, 5))
		if err != nil {
			t.Fatal(err)
		}
		same(part, name+".part")
	}
	ours := create(t, fs, "/ours")
	h := a.Header()
	h.Version = 0
	b, err := array.Create(ctx, ours, h)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	p := make([]byte, a.Bytes())
	if err := a.All().Read(ctx, p, array.RowMajor); err != nil {
		t.Fatal(err)
	}
	if err := b.All().Write(ctx, p, array.RowMajor); err != nil {
		t.Fatal(err)
	}
	all := make([]byte, ours.Size())
	if _, err := ours.ReadAt(ctx, all, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name+".ours.npy", all, 0o600); err != nil {
		t.Fatal(err)
	}
}

// load copies a file of this host.
func load(t *testing.T, fs *client.FS, name string) *client.File {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	f := create(t, fs, "/theirs")
	if _, err := f.WriteAt(context.Background(), data, 0); err != nil {
		t.Fatal(err)
	}
	return f
}
