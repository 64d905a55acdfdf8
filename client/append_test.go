package client

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// TestAppendsOfTwoClients at the same moment follow each other: every record is there once, whole.
func TestAppendsOfTwoClients(t *testing.T) {
	c := newCluster(t, 3, store.Options{})
	ctx := context.Background()
	made := create(t, c.client(Options{}), "f", 3)
	const clients, records, length = 3, 60, 3000
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
