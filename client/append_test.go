package client

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// TestAppendsOfClients: those of two and five clients at the same moment follow each other: every
// record is there once, whole.
func TestAppendsOfClients(t *testing.T) {
	for _, clients := range []int{2, 5} {
		t.Run(fmt.Sprint(clients), func(t *testing.T) { appendAtOnce(t, clients) })
	}
}

func appendAtOnce(t *testing.T, clients int) {
	c := newCluster(t, 3, store.Options{})
	ctx := context.Background()
	made := create(t, c.client(Options{}), "f", 3)
	const records, length = 60, 3000
	record := func(who, i int) []byte {
		text := fmt.Sprintf("<client %d record %d>", who, i)
		return append([]byte(text), bytes.Repeat([]byte{byte('a' + who)}, length-len(text))...)
	}
	var wg sync.WaitGroup
	for who := range clients {
		f, err := c.client(Options{}).OpenIno(ctx, meta.Cred{}, made.Ino(), meta.OpenWrite)
		must(t, err)
		wg.Go(func() {
			for i := range records {
				if _, err := f.Append(ctx, record(who, i)); err != nil {
					t.Error(err)
				}
			}
			if err := f.Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if _, err := made.Stat(ctx); err != nil {
		t.Fatal(err)
	}
	got := contents(t, made)
	if len(got) != clients*records*length {
		t.Fatalf("%d bytes, want %d", len(got), clients*records*length)
	}
	seen := map[string]bool{}
	for ; len(got) > 0; got = got[length:] {
		seen[string(got[:length])] = true
	}
	for who := range clients {
		for i := range records {
			if !seen[string(record(who, i))] {
				t.Fatalf("record %d of client %d is lost", i, who)
			}
		}
	}
}

// TestAppendsInTurn: each client of several finds the end that the one before it has left, though
// it has its own idea of the file's length. Now and then one of them loses its session.
func TestAppendsInTurn(t *testing.T) {
	for _, clients := range []int{2, 5} {
		c := newCluster(t, 2, store.Options{})
		ctx := context.Background()
		made := create(t, c.client(Options{}), "f", 2)
		var files []*File
		for range clients {
			f, err := c.client(Options{}).OpenIno(ctx, meta.Cred{}, made.Ino(),
				meta.OpenWrite)
			must(t, err)
			files = append(files, f)
		}
		var want []byte
		for i := range 100 {
			f := files[i%clients]
			if i%17 == 16 {
				must(t, f.fs.replaceSession(ctx, f.fs.sess.Load()))
			}
			line := fmt.Appendf(nil, "record %d\n", i)
			off, err := f.Append(ctx, line)
			if err != nil || off != int64(len(want)) {
				t.Fatalf("record %d of %d clients at %d, want %d: %v", i, clients, off, len(want), err)
			}
			want = append(want, line...)
		}
		_, err := made.Stat(ctx)
		must(t, err)
		if got := contents(t, made); !bytes.Equal(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
	}
}

// asked counts requests to the metadata service: reservations, and what else an append could need.
type asked struct {
	meta.Service
	appends, others atomic.Int64
}

func (a *asked) Append(ctx context.Context, c meta.Caller, handle uint64, n int64) (
	int64, meta.Attr, error) {
	a.appends.Add(1)
	return a.Service.Append(ctx, c, handle, n)
}

func (a *asked) GetAttr(ctx context.Context, c meta.Caller, ino meta.Ino) (meta.Attr, error) {
	a.others.Add(1)
	return a.Service.GetAttr(ctx, c, ino)
}

func (a *asked) Commit(ctx context.Context, c meta.Caller, w meta.Change, sync bool) (
	meta.Attr, error) {
	a.others.Add(1)
	return a.Service.Commit(ctx, c, w, sync)
}

// TestLoneAppender: what an append costs who is alone. To a small file: nothing. To a larger one:
// one reservation, which measures the file, one write, and nothing else.
func TestLoneAppender(t *testing.T) {
	c := newCluster(t, 1, store.Options{})
	svc := &asked{Service: c.meta}
	fs, err := New(svc, c, Options{})
	must(t, err)
	defer func() { must(t, fs.Close()) }()
	const records = 50
	f, err := fs.Create(context.Background(), "small")
	must(t, err)
	svc.others.Store(0)
	n := c.counted(iod.OpWrite, func() {
		for range records {
			_, err := f.Append(context.Background(), []byte("line\n"))
			must(t, err)
		}
	})
	if n[1] != 0 || svc.appends.Load()+svc.others.Load() != 0 {
		t.Fatalf("appends to a small file: %d reservations, %d other requests, %d writes",
			svc.appends.Load(), svc.others.Load(), n[1])
	}
	must(t, f.Close(context.Background()))
	f = create(t, fs, "f", 1)
	svc.others.Store(0)
	all := func() {
		for range records {
			_, err := f.Append(context.Background(), []byte("line\n"))
			must(t, err)
		}
	}
	writes := c.counted(iod.OpWrite, all)
	stats := c.counted(iod.OpStat, all)
	if svc.appends.Load() != 2*records || svc.others.Load() != 0 || writes[1] != records ||
		stats[1] != records {
		t.Fatalf("%d appends: %d reservations, %d other requests, %d writes, %d measurements",
			records, svc.appends.Load()/2, svc.others.Load(), writes[1], stats[1])
	}
}

// TestAppendMeetsTruncation: what was reserved before the file was cut is not where the data goes.
func TestAppendMeetsTruncation(t *testing.T) {
	c := newCluster(t, 2, store.Options{})
	a, b := c.client(Options{}), c.client(Options{})
	ctx := context.Background()
	f := create(t, a, "f", 2)
	write(t, f, pattern(3*unit, 1), 0)
	var once sync.Once
	c.hook = func(x call) error {
		if x.op == iod.OpWrite {
			once.Do(func() { must(t, b.Truncate(ctx, "/f", 10)) })
		}
		return nil
	}
	off, err := f.Append(ctx, []byte("tail"))
	if err != nil || off != 10 {
		t.Fatalf("appended at %d, %v; want 10", off, err)
	}
	want := append(pattern(10, 1), "tail"...)
	if got := contents(t, f); !bytes.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
	must(t, f.Close(ctx))
}

// TestAppendFailures: a refusal for want of space leaves no trace, an unknown outcome leaves room
// for the data that may still come.
func TestAppendFailures(t *testing.T) {
	c := newCluster(t, 2, store.Options{})
	a, b := c.client(Options{}), c.client(Options{})
	ctx := context.Background()
	f := create(t, a, "f", 2)
	other, err := b.OpenIno(ctx, meta.Cred{}, f.Ino(), meta.OpenWrite)
	must(t, err)
	var fail error
	c.hook = func(x call) error {
		if x.op == iod.OpWrite {
			return fail
		}
		return nil
	}
	for _, s := range []struct {
		fail error
		at   int64 // where the other client's next append goes
	}{{errs.NoSpace, 0}, {errs.NoSpace, 4}, {errs.IO, 12}} {
		fail = s.fail
		if _, err := f.Append(ctx, []byte("lost")); errs.KindOf(err) != errs.KindOf(fail) {
			t.Fatalf("append: %v, want %v", err, fail)
		}
		fail = nil
		if off, err := other.Append(ctx, []byte("kept")); err != nil || off != s.at {
			t.Fatalf("appended at %d after %v, %v; want %d", off, s.fail, err, s.at)
		}
	}
	must(t, f.Close(ctx))
	must(t, other.Close(ctx))
}
