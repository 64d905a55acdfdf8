package store_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/kv/pebblekv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/dump"
	"github.com/sluice-storage/sluice/meta/store"
)

// backup dumps a store that is being served, page by page, and calls meanwhile between the pages.
func (p *patient) backup(view uint64, meanwhile func()) []byte {
	p.t.Helper()
	var b bytes.Buffer
	var w *dump.Writer
	for page := (meta.DumpPage{}); !page.End; {
		var err error
		after := page.Last
		page, err = p.store.Dump(p.t.Context(), meta.Caller{}, view, after)
		p.must(err)
		again, err := p.store.Dump(p.t.Context(), meta.Caller{}, view, after)
		p.must(err)
		if !bytes.Equal(again.Records, page.Records) || again.End != page.End {
			p.t.Fatal("a page that is asked for again is another one")
		}
		if w == nil {
			w = p.header(&b, page)
		}
		p.must(w.Write(page.Records))
		meanwhile()
	}
	p.must(w.Close())
	return b.Bytes()
}

func (p *patient) header(b *bytes.Buffer, page meta.DumpPage) *dump.Writer {
	p.t.Helper()
	var format []byte
	_, _, err := dump.Each(page.Records, nil, func(r dump.Record) error {
		if string(r.Key) == store.FormatKey {
			format = bytes.Clone(r.Value)
		}
		return nil
	})
	p.must(err)
	h, err := store.DumpHeader(format, page.Version, 1)
	p.must(err)
	w, err := dump.NewWriter(b, h)
	p.must(err)
	return w
}

// everything reads a whole snapshot.
func everything(t testing.TB, snap kv.Snapshot) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := snap.Scan(nil, nil, func(key, value []byte, _ kv.Version) bool {
		all[string(key)] = string(value)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestBackupOfARunningStore dumps while clients work, and restores into both engines: what is
// restored is the store as it was when the dump began, and a service runs on it.
func TestBackupOfARunningStore(t *testing.T) {
	p := newPatient(t)
	for i := range 2000 {
		p.mk(p.dir, fmt.Sprint("many", i), meta.Fifo)
	}
	value := make([]byte, meta.XattrValue)
	for i := range 12 { // enough for several pages
		p.must(p.store.SetXattr(t.Context(), meta.Caller{}, p.file.Ino, fmt.Sprint("user.", i), value,
			false, false))
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	top, other := p.mk(meta.RootIno, "w", meta.Directory), p.mk(meta.RootIno, "o", meta.Directory)
	rng := rand.New(rand.NewPCG(1, 2))
	var gate sync.Mutex // so that the snapshot to compare with is of the same moment
	wg.Go(func() {
		for ctx.Err() == nil {
			gate.Lock()
			p.disturb(rng, top, other)
			gate.Unlock()
		}
	})
	gate.Lock()
	snap := p.engine.Snapshot()
	defer snap.Close()
	_, err := p.store.Dump(t.Context(), meta.Caller{}, 7, nil) // begins the view
	gate.Unlock()
	p.must(err)
	pages := 0
	b := p.backup(7, func() { pages++ })
	stop()
	wg.Wait()
	if pages < 2 {
		t.Fatalf("%d pages: nothing could change in between", pages)
	}
	want := everything(t, snap)
	for name, open := range targets(t) {
		t.Run(name, func(t *testing.T) { restore(t, open(), b, want) })
	}
}

// targets are the engines that a dump is restored into.
func targets(t *testing.T) map[string]func() kv.Store {
	return map[string]func() kv.Store{
		"memkv": func() kv.Store { return memkv.New(memkv.Options{}) },
		"pebblekv": func() kv.Store {
			engine, err := pebblekv.Open(pebblekv.Options{Dir: "meta", FS: vfs.NewMem()})
			if err != nil {
				t.Fatal(err)
			}
			return engine
		},
	}
}

func restore(t *testing.T, engine kv.Store, b []byte, want map[string]string) {
	defer engine.Close()
	count, err := store.Load(t.Context(), engine, bytes.NewReader(b), store.LoadOptions{
		Report: func(problem string) { t.Error(problem) }})
	if err != nil || count != uint64(len(want)) {
		t.Fatalf("%v: %d records, want %d", err, count, len(want))
	}
	snap := engine.Snapshot()
	got := everything(t, snap)
	snap.Close()
	if got["Aforgotten"] == "" {
		t.Error("files that were made after the dump are not taken care of")
	}
	delete(got, "Aforgotten") // the only record that is made by the load
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for k, v := range want {
		if got[k] != v {
			t.Fatalf("record %q is another one", k)
		}
	}
	_, err = store.Load(t.Context(), engine, bytes.NewReader(b), store.LoadOptions{})
	if errs.KindOf(err) != errs.Exists {
		t.Fatalf("a load over a store: %v", err)
	}
	s, err := store.New(t.Context(), engine, store.Options{Objects: newSizes(), Tick: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Lookup(t.Context(), meta.Caller{}, meta.RootIno, "d"); err != nil {
		t.Error(err)
	}
	verify(t, s)
	s.Stop()
}

// TestDamagedDumpsAreRefused: what is left of such a load is no store, for nobody.
func TestDamagedDumpsAreRefused(t *testing.T) {
	p := newPatient(t)
	b := p.backup(1, func() {})
	load := func(b []byte, opt store.LoadOptions) error {
		engine := memkv.New(memkv.Options{})
		defer engine.Close()
		_, err := store.Load(t.Context(), engine, bytes.NewReader(b), opt)
		if err == nil {
			return nil
		}
		s, newErr := store.New(t.Context(), engine, store.Options{Objects: newSizes()})
		if newErr == nil {
			s.Stop()
			if snap := engine.Snapshot(); snap.Version() > 2 { // what New makes of an empty engine
				t.Error("a store was made of a refused dump")
			}
		}
		return err
	}
	for i := 0; i < len(b); i += 7 {
		b[i] ^= 1
		if k := errs.KindOf(load(b, store.LoadOptions{})); k != errs.Corrupt && k != errs.Version {
			t.Fatalf("byte %d: %v", i, k)
		}
		b[i] ^= 1
		if err := load(b[:i], store.LoadOptions{}); errs.KindOf(err) != errs.Corrupt {
			t.Fatalf("cut to %d bytes: %v", i, err)
		}
	}
	if err := load(b, store.LoadOptions{Cluster: 1}); errs.KindOf(err) != errs.Invalid {
		t.Fatalf("a dump of another cluster: %v", err)
	}
	if err := load(b, store.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestViews: few at a time, and one that is not known is refused.
func TestViews(t *testing.T) {
	p := newPatient(t)
	ask := func(view uint64, after []byte) errs.Kind {
		_, err := p.store.Dump(t.Context(), meta.Caller{}, view, after)
		return errs.KindOf(err)
	}
	value := make([]byte, meta.XattrValue)
	for i := range 12 { // so that there are several pages
		p.must(p.store.SetXattr(t.Context(), meta.Caller{}, p.file.Ino, fmt.Sprint("user.", i), value,
			false, false))
	}
	for view := uint64(1); view <= meta.ViewsMax; view++ {
		if k := ask(view, nil); k != errs.OK {
			t.Fatal(k)
		}
	}
	if k := ask(98, nil); k != errs.Busy {
		t.Fatal(k)
	}
	p.backup(1, func() {}) // one that was read to its end makes room
	if k := ask(98, nil); k != errs.OK {
		t.Fatal(k)
	}
	if k := ask(1, []byte("A")); k != errs.Stale {
		t.Fatal(k)
	}
	if k := ask(99, []byte("A")); k != errs.Stale {
		t.Fatal(k)
	}
	if k := ask(0, nil); k != errs.Invalid {
		t.Fatal(k)
	}
}
