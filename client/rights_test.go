package client_test

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/client/clustertest"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/peer"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wants(t testing.TB, err error, kind errs.Kind) {
	t.Helper()
	if errs.KindOf(err) != kind {
		t.Fatalf("%v, want %v", err, kind)
	}
}

// members starts a cluster with two directories, one for everybody.
func members(t testing.TB) *clustertest.Members {
	t.Helper()
	m, err := clustertest.StartMembers(2)
	check(t, err)
	t.Cleanup(m.Stop)
	for _, name := range []string{"proj", "other"} {
		_, err := m.Names.Make(t.Context(), meta.Caller{}, meta.RootIno, name,
			meta.NewFile{Type: meta.Directory, Mode: 0o777})
		check(t, err)
	}
	return m
}

// enter connects a client with rights, on behalf of a user.
func enter(t testing.TB, m *clustertest.Members, name string, uid uint32,
	rights identity.Rights, by ...string) *client.FS {
	t.Helper()
	security, err := m.Client(name, rights)
	check(t, err)
	fs, err := client.Dial(t.Context(), m.URL, client.Options{Cred: &meta.Cred{UID: uid, GID: uid},
		Peer: peer.Options{Security: security, Use: by}, WaitMax: 20 * time.Second})
	check(t, err)
	t.Cleanup(func() { fs.Close() })
	return fs
}

func write(t testing.TB, fs *client.FS, path string, data []byte) {
	t.Helper()
	f, err := fs.Create(t.Context(), path)
	check(t, err)
	_, err = f.WriteAt(t.Context(), data, 0)
	check(t, err)
	check(t, f.Sync(t.Context()))
	check(t, f.Close(t.Context()))
}

func read(t testing.TB, fs *client.FS, path string, n int) []byte {
	t.Helper()
	f, err := fs.Open(t.Context(), path)
	check(t, err)
	defer f.Close(context.Background())
	buf := make([]byte, n+1)
	got, err := f.ReadAt(t.Context(), buf, 0)
	if got != n {
		t.Fatalf("%d bytes, %v", got, err)
	}
	return buf[:n]
}

// TestRightsOverTLS: clients with rights, with real services, over TLS, and by shared memory on one
// host: one that writes in a subtree, one that reads there, one that may do everything.
func TestRightsOverTLS(t *testing.T) {
	for name, by := range map[string][]string{"tcp": {peer.TCP}, "shm": {peer.SHM, peer.TCP}} {
		t.Run(name, func(t *testing.T) { testRights(t, by...) })
	}
}

func testRights(t *testing.T, by ...string) {
	m, ctx := members(t), t.Context()
	in := identity.Rights{Path: "/proj"}
	ana := enter(t, m, "ana", 1000, in, by...)
	small, large := []byte("small"), bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	write(t, ana, "/small", small)
	write(t, ana, "/large", large)
	check(t, ana.Mkdir(ctx, "/dir", 0o755))
	check(t, ana.Rename(ctx, "/small", "/dir/small"))
	if a, err := ana.Stat(ctx, "/dir/../../.."); err != nil || a.Ino != meta.RootIno {
		t.Fatalf("above the root is %d, %v", a.Ino, err)
	}
	_, err := ana.Stat(ctx, "/proj")
	wants(t, err, errs.NotFound)
	if a, err := ana.Stat(ctx, "/large"); err != nil || a.UID != 1000 || a.Size != int64(len(large)) {
		t.Fatalf("%+v, %v", a, err)
	}

	in.ReadOnly = true
	eve := enter(t, m, "eve", 0, in, by...)
	if !eve.ReadOnly() || !eve.Squashed() || ana.ReadOnly() {
		t.Fatal("clients do not know what they may")
	}
	for path, data := range map[string][]byte{"/dir/small": small, "/large": large} {
		if got := read(t, eve, path, len(data)); !bytes.Equal(got, data) {
			t.Fatalf("%s is something else", path)
		}
	}
	_, err = eve.OpenFile(ctx, "/large", os.O_RDWR, 0)
	wants(t, err, errs.ReadOnly)
	_, err = eve.Create(ctx, "/new")
	wants(t, err, errs.ReadOnly)
	wants(t, eve.Remove(ctx, "/large"), errs.ReadOnly)
	wants(t, eve.Mkdir(ctx, "/d", 0o755), errs.ReadOnly)
	check(t, ana.Chmod(ctx, "/large", 0o600))
	_, err = eve.Open(ctx, "/large") // root is nobody
	wants(t, err, errs.Access)

	host := enter(t, m, "trusted", 0, identity.Rights{Path: "/", Squash: identity.SquashNone},
		by...)
	if got := read(t, host, "/proj/large", len(large)); !bytes.Equal(got, large) {
		t.Fatal("another file")
	}
	_, err = host.Stat(ctx, "/other")
	check(t, err)

	// What ana has open stays its own when it is moved away; what it has not is gone.
	f, err := ana.OpenFile(ctx, "/large", os.O_RDWR, 0)
	check(t, err)
	check(t, host.Rename(ctx, "/proj/large", "/other/large"))
	check(t, f.Truncate(ctx, 10))
	_, err = f.WriteAt(ctx, large, 5)
	check(t, err)
	check(t, f.Sync(ctx))
	check(t, f.Close(ctx))
	_, err = ana.Open(ctx, "/large")
	wants(t, err, errs.NotFound)
	if a, err := host.Stat(ctx, "/other/large"); err != nil || a.Size != 5+int64(len(large)) {
		t.Fatalf("%+v, %v", a, err)
	}
}

// TestRemovedClient: a client that was removed is refused what it asks for next.
func TestRemovedClient(t *testing.T) {
	m, ctx := members(t), t.Context()
	ana := enter(t, m, "ana", 1000, identity.Rights{Path: "/proj"})
	write(t, ana, "/file", []byte("data"))
	check(t, m.Names.RemoveMember(ctx, meta.Caller{}, identity.Client, "ana"))
	for end := time.Now().Add(time.Minute); ; {
		if err := ana.Mkdir(ctx, "/dir", 0o755); errs.KindOf(err) == errs.Perm {
			break
		} else if err == nil {
			check(t, ana.Remove(ctx, "/dir"))
		}
		if time.Now().After(end) {
			t.Fatal("it goes on and on")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestMissingPath: who may see a directory that is not there is told so when it connects.
func TestMissingPath(t *testing.T) {
	m := members(t)
	security, err := m.Client("ana", identity.Rights{Path: "/proj/ana"})
	check(t, err)
	_, err = client.Dial(t.Context(), m.URL, client.Options{WaitMax: 5 * time.Second,
		Peer: peer.Options{Security: security, Use: []string{peer.TCP}}})
	wants(t, err, errs.NotFound)
}
