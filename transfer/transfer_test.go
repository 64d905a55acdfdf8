package transfer

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	mrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/exio"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/peer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKind(t *testing.T, err error, kind errs.Kind) {
	t.Helper()
	if errs.KindOf(err) != kind {
		t.Fatalf("%v, want %v", err, kind)
	}
}

// site is a service with its folder.
type site struct {
	*Service
	dir, secret string
}

// newSecret makes the file of a secret.
func newSecret(t *testing.T) string {
	var key [tcp.SecretBytes]byte
	_, _ = rand.Read(key[:])
	name := filepath.Join(t.TempDir(), tcp.SecretName)
	must(t, os.WriteFile(name, []byte(hex.EncodeToString(key[:])+"\n"), 0o600))
	return name
}

// serve starts a service on loopback.
func serve(t *testing.T, change func(*ServiceOptions)) *site {
	t.Helper()
	s := &site{dir: t.TempDir(), secret: newSecret(t)}
	providers, err := peer.Open(peer.Options{Use: []string{peer.SHM, peer.TCP}, Listens: true,
		Secret: &tcp.Secret{File: s.secret}})
	must(t, err)
	folder, err := OpenFolder(s.dir)
	must(t, err)
	opts := ServiceOptions{Providers: providers, Listen: "127.0.0.1:0", Store: folder, Read: true,
		Write: true, Memory: true, Sessions: 512}
	if change != nil {
		change(&opts)
	}
	s.Service, err = Serve(opts)
	must(t, err)
	t.Cleanup(func() {
		must(t, s.Close())
		must(t, folder.Close())
		must(t, providers.Close())
	})
	return s
}

// dial connects to a service.
func (s *site) dial(t *testing.T) *Client {
	t.Helper()
	providers, err := peer.Open(peer.Options{Use: []string{peer.SHM, peer.TCP},
		Secret: &tcp.Secret{File: s.secret}})
	must(t, err)
	c, err := Dial(context.Background(), providers, s.Addr(), 1<<30)
	must(t, err)
	t.Cleanup(func() {
		must(t, c.Close())
		must(t, providers.Close())
	})
	return c
}

// blob is an original in memory.
type blob struct {
	*bytes.Reader
	fail int64 // reading from here on fails; 0: nowhere
}

func newBlob(b []byte) *blob { return &blob{Reader: bytes.NewReader(b)} }

func (b *blob) Close() error      { return nil }
func (b *blob) Mode() os.FileMode { return 0o640 }

func (b *blob) ReadAt(p []byte, off int64) (int, error) {
	if b.fail > 0 && off >= b.fail {
		return 0, errors.New("the disk has failed")
	}
	return b.Reader.ReadAt(p, off)
}

func random(seed uint64, n int) []byte {
	b := make([]byte, n)
	rng := mrand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = rng.Read(b)
	return b
}

// sizes are around the borders of blocks.
func sizes(block int) []int {
	return []int{0, 1, block - 1, block, block + 1, 7*block + 3, 40 * block}
}

// TestPutAndGet moves files of many sizes by every driver, and back.
func TestPutAndGet(t *testing.T) {
	s := serve(t, nil)
	for _, driver := range []string{peer.SHM, peer.TCP, Socket} {
		for i, n := range sizes(BlockMin) {
			data := random(uint64(i), n)
			o := Options{Block: BlockMin, Depth: 3, Verify: i%2 == 0}
			if i%3 == 0 {
				o = Options{Depth: 2, Shape: Shape{Count: 8, Bytes: 512, Stride: 700}}
			}
			name := "/" + driver + "-" + string(rune('a'+i))
			r, err := s.dial(t).Put(context.Background(), Request{Name: name, Driver: driver, Options: o},
				newBlob(data), Creation{Mode: 0o640})
			must(t, err)
			got, err := os.ReadFile(filepath.Join(s.dir, name))
			must(t, err)
			if !bytes.Equal(got, data) || r.Moved != int64(n) || r.Bytes != int64(n) {
				t.Fatalf("%s, %d bytes: %+v", driver, n, r)
			}
			local, err := OpenFolder(t.TempDir())
			must(t, err)
			back, err := s.dial(t).Get(context.Background(), Request{Name: name, Driver: driver,
				Options: o}, func(size int64, mode os.FileMode) (Copy, error) {
				return local.Create(context.Background(), "back", Creation{Size: size, Mode: mode})
			})
			must(t, err)
			got, err = local.root.ReadFile("back")
			must(t, err)
			if !bytes.Equal(got, data) || back.Sum != r.Sum {
				t.Fatalf("%s, %d bytes: %+v, back %+v", driver, n, r, back)
			}
			must(t, local.Close())
		}
	}
	left, err := filepath.Glob(filepath.Join(s.dir, ".*"))
	if err != nil || len(left) != 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}

// TestMemory moves memory in pieces, and chooses the driver by measuring.
func TestMemory(t *testing.T) {
	s := serve(t, nil)
	c := s.dial(t)
	r, err := c.Put(context.Background(), Request{Memory: true, Size: 96 << 20, Options: Options{
		Shape: Shape{Count: 16, Bytes: 64 << 10, Stride: 128 << 10}}}, nil, Creation{})
	must(t, err)
	if r.Moved != 96<<20 {
		t.Errorf("%+v", r)
	}
	taken, measured := 0, 0
	for _, ch := range c.Choices {
		if ch.Taken {
			taken++
		}
		if ch.Rate > 0 {
			measured++
		}
	}
	if taken != 1 || measured < 3 {
		t.Errorf("%+v", c.Choices)
	}
	_, err = s.dial(t).Get(context.Background(), Request{Memory: true, Size: 5<<20 + 1}, nil)
	must(t, err)
}

// TestResume cuts transfers at random places and goes on: what arrived is not sent again, and what
// was damaged in between is.
func TestResume(t *testing.T) {
	s := serve(t, nil)
	seed := mrand.Uint64()
	t.Logf("seed %d", seed)
	rng := mrand.New(mrand.NewPCG(seed, 1))
	const block, count = BlockMin, 300
	data := random(7, block*count-100)
	o := Options{Block: block, Depth: 4}
	for round := range 6 {
		name := "file" + string(rune('0'+round))
		from := newBlob(data)
		from.fail = int64(block * (1 + rng.IntN(count-1)))
		put := func(from Original) (Result, error) {
			return s.dial(t).Put(context.Background(), Request{Name: name, Options: o}, from,
				Creation{Mode: 0o600})
		}
		_, err := put(from)
		if err == nil || !strings.Contains(err.Error(), "the disk has failed") {
			t.Fatal(err)
		}
		part := filepath.Join(s.dir, "."+name+PartSuffix)
		arrived := int64(0)
		f, err := os.OpenFile(part, os.O_RDWR, 0)
		if !errors.Is(err, os.ErrNotExist) { // else the other side has not begun
			must(t, err)
			info, err := f.Stat()
			must(t, err)
			if arrived = info.Size() / block; arrived > 2 {
				_, err = f.WriteAt([]byte("xx"), int64(rng.IntN(int(info.Size()-2))))
				must(t, err)
			}
			must(t, f.Close())
		}
		r, err := put(newBlob(data))
		must(t, err)
		got, err := os.ReadFile(filepath.Join(s.dir, name))
		must(t, err)
		if !bytes.Equal(got, data) {
			t.Fatalf("round %d: other bytes", round)
		}
		if arrived > 10 && r.Skipped == 0 || r.Skipped+r.Moved != r.Bytes {
			t.Errorf("round %d: %d blocks were there: %+v", round, arrived, r)
		}
	}
}

// TestChangedOriginal: what another original has left is compared, not believed.
func TestChangedOriginal(t *testing.T) {
	s := serve(t, nil)
	o := Options{Block: BlockMin}
	first, second := random(1, 100*BlockMin), random(2, 90*BlockMin)
	copy(second, first[:10*BlockMin])
	from := newBlob(first)
	from.fail = 80 * BlockMin
	_, err := s.dial(t).Put(context.Background(), Request{Name: "x", Options: o}, from, Creation{})
	if err == nil {
		t.Fatal("the original fails")
	}
	r, err := s.dial(t).Put(context.Background(), Request{Name: "x", Options: o}, newBlob(second),
		Creation{Mode: 0o600})
	must(t, err)
	got, err := os.ReadFile(filepath.Join(s.dir, "x"))
	must(t, err)
	if !bytes.Equal(got, second) || r.Skipped > 10*BlockMin {
		t.Fatalf("%+v", r)
	}
}

// TestNames: what exists stays, and no name leads out of the folder.
func TestNames(t *testing.T) {
	s := serve(t, nil)
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600))
	must(t, os.Symlink(outside, filepath.Join(s.dir, "out")))
	must(t, os.Symlink(filepath.Join(outside, "secret"), filepath.Join(s.dir, "link")))
	must(t, os.WriteFile(filepath.Join(s.dir, "there"), []byte("old"), 0o600))
	must(t, os.Mkdir(filepath.Join(s.dir, "folder"), 0o700))
	put := func(name string, how Creation) error {
		_, err := s.dial(t).Put(context.Background(), Request{Name: name}, newBlob([]byte("new")), how)
		return err
	}
	get := func(name string) error {
		_, err := s.dial(t).Get(context.Background(), Request{Name: name}, nil)
		return err
	}
	for name, kind := range map[string]errs.Kind{
		"../x": errs.Invalid, "a/../../x": errs.Invalid, "": errs.Invalid, "/": errs.Invalid,
		"out/x": errs.Perm, "nowhere/x": errs.NotFound, "there": errs.Exists, "link": errs.Exists,
		"folder": errs.IsDir, "a\x00b": errs.Invalid, strings.Repeat("y", 300): errs.NameTooLong,
		strings.Repeat("y/", 3000) + "y": errs.Protocol,
	} {
		if err := put(name, Creation{}); errs.KindOf(err) != kind {
			t.Errorf("put %.20q: %v, want %v", name, err, kind)
		}
	}
	for name, kind := range map[string]errs.Kind{
		"../x": errs.Invalid, "out/secret": errs.Perm, "link": errs.Perm, "missing": errs.NotFound,
		"folder": errs.IsDir,
	} {
		if err := get(name); errs.KindOf(err) != kind {
			t.Errorf("get %q: %v, want %v", name, err, kind)
		}
	}
	must(t, put("there", Creation{Overwrite: true, Mode: 0o600}))
	must(t, put("link", Creation{Overwrite: true, Mode: 0o600})) // the link, not what it leads to
	for name, want := range map[string]string{filepath.Join(s.dir, "there"): "new",
		filepath.Join(s.dir, "link"): "new", filepath.Join(outside, "secret"): "secret"} {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	all, err := os.ReadDir(outside)
	if err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
}

// TestAllowed: a service does what it was told to, for whom it was told to.
func TestAllowed(t *testing.T) {
	s := serve(t, func(o *ServiceOptions) { o.Write, o.Memory = false, false })
	_, err := s.dial(t).Put(context.Background(), Request{Name: "x"}, newBlob(nil), Creation{})
	wantKind(t, err, errs.Perm)
	_, err = s.dial(t).Get(context.Background(), Request{Memory: true, Size: 1}, nil)
	wantKind(t, err, errs.Perm)
	only := serve(t, func(o *ServiceOptions) { o.Only = []string{"somebody"} })
	providers, err := peer.Open(peer.Options{Use: []string{peer.TCP},
		Secret: &tcp.Secret{File: only.secret}})
	must(t, err)
	defer providers.Close()
	_, err = Dial(context.Background(), providers, only.Addr(), 1<<20)
	wantKind(t, err, errs.Perm)
}

// TestWrongKey: who does not know the secret is not served.
func TestWrongKey(t *testing.T) {
	s := serve(t, nil)
	providers, err := peer.Open(peer.Options{Use: []string{peer.SHM, peer.TCP},
		Secret: &tcp.Secret{File: newSecret(t)}})
	must(t, err)
	defer providers.Close()
	_, err = Dial(context.Background(), providers, s.Addr(), 1<<20)
	wantKind(t, err, errs.Perm)
}

// TestBusy: two transfers do not write one file.
func TestBusy(t *testing.T) {
	dir, err := OpenFolder(t.TempDir())
	must(t, err)
	defer dir.Close()
	ctx := context.Background()
	one, err := dir.Create(ctx, "x", Creation{Size: 10})
	must(t, err)
	_, err = dir.Create(ctx, "x", Creation{Size: 10})
	wantKind(t, err, errs.Busy)
	must(t, one.Close())
	two, err := dir.Create(ctx, "x", Creation{Size: 10, Mode: 0o600})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir.root.Name(), "x"), []byte("mine"), 0o600))
	wantKind(t, two.Complete(ctx, nil), errs.Exists) // it came meanwhile
	must(t, two.Close())
}

// TestVerifyFindsDamage: a copy that is not what was sent does not take its name.
func TestVerifyFindsDamage(t *testing.T) {
	dir, err := OpenFolder(t.TempDir())
	must(t, err)
	defer dir.Close()
	to, err := dir.Create(context.Background(), "x", Creation{Size: 3 * BlockMin, Mode: 0o600})
	must(t, err)
	defer to.Close()
	_, err = Local(context.Background(), Request{Options: Options{Block: BlockMin, Verify: true}},
		newBlob(random(1, 3*BlockMin)), spoiled{to})
	wantKind(t, err, errs.Corrupt)
	if _, err := dir.root.Stat("x"); err == nil {
		t.Error("it has taken its name")
	}
}

// spoiled is a copy that loses a byte of what is written, as disks do.
type spoiled struct{ Copy }

func (s spoiled) WriteAt(p []byte, off int64) (int, error) {
	p = bytes.Clone(p)
	if off == BlockMin {
		p[17] ^= 1
	}
	return s.Copy.WriteAt(p, off)
}

// TestSilentPeer: a peer that does nothing is given up, and what came of it stays.
func TestSilentPeer(t *testing.T) {
	ctx := context.Background()
	controls, err := pair()
	must(t, err)
	data, err := pair()
	must(t, err)
	memory, err := exio.NewMemory(nil, 1<<20)
	must(t, err)
	o := Options{Block: BlockMin, Depth: 1, Timeout: time.Second}.WithDefaults()
	buffers, err := newBuffers(memory, o)
	must(t, err)
	c := newControl(controls[0])
	_, err = newMoving(c, data[0], o, 10*BlockMin, buffers, nil).sink(ctx, nil)
	wantKind(t, err, errs.TimedOut)
	c.close()
	for _, h := range []io.Closer{controls[1], data[1], memory} {
		must(t, h.Close())
	}
}

// TestLastWords: why a peer has given up is heard, though it has closed the connection before this
// side began to listen, and though who asks is not the first who hears of it.
func TestLastWords(t *testing.T) {
	ctx := context.Background()
	ends, err := pair()
	must(t, err)
	peer := newControl(ends[1])
	peer.fail(errs.Newf(errs.NotFound, "transfer", "x", "it is not there"))
	peer.close()
	_, err = exio.Wait(ctx, ends[0].Read, exio.Op{Tag: tagJoin})
	wantKind(t, err, errs.Disconnected)
	c := newControl(ends[0])
	defer c.close()
	_, err = c.expect(ctx, msgOpened)
	wantKind(t, err, errs.NotFound)
	wantKind(t, c.reason(errs.New(errs.Disconnected, "data", "", nil)), errs.NotFound)
}

// FuzzDecode: no message of a peer harms, and what is read is written the same.
func FuzzDecode(f *testing.F) {
	for _, m := range []message{
		{kind: msgHello}, {kind: msgOffers, offers: []offer{{driver: "tcp", addr: "a:1"}}},
		{kind: msgProbe, count: 7}, {kind: msgPut, name: "x", moving: Options{Block: 1}},
		{kind: msgGet, name: "x"}, {kind: msgOpened, size: 9},
		{kind: msgWant, first: 3, blocks: []block{{true, 9}, {}}}, {kind: msgSent},
		{kind: msgFinished, sum: 1}, {kind: msgFailed, failure: errs.IO, text: "x"}, {kind: msgAlive},
	} {
		f.Add(m.encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		if err != nil {
			return
		}
		if m.put.Mode&^0o777 != 0 || len(m.blocks) > windowMax || len(m.offers) > offersMax ||
			len(m.name) > nameMax {
			t.Fatalf("%+v", m)
		}
		again, err := decode(m.encode())
		if err != nil || len(again.blocks) != len(m.blocks) || again.kind != m.kind {
			t.Fatalf("%+v, %v", again, err)
		}
	})
}
