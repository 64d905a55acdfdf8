package filter_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/nbd/exporttest"
	"github.com/sluice-storage/sluice/nbd/filter"
	"github.com/sluice-storage/sluice/nbd/memexport"
)

func parse(tb testing.TB, texts ...string) []filter.Filter {
	tb.Helper()
	var all []filter.Filter
	for _, text := range texts {
		f, err := filter.Parse(text)
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, f)
	}
	return all
}

func stack(tb testing.TB, exp nbd.Export, texts ...string) nbd.Export {
	tb.Helper()
	out, err := filter.Stack(exp, parse(tb, texts...), filter.Options{Name: "x"})
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

func memory(tb testing.TB, size int64) *memexport.Memory {
	tb.Helper()
	m, err := memexport.New(size)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// TestConformance: a filter that lets everything pass changes nothing.
func TestConformance(t *testing.T) {
	for _, texts := range [][]string{
		{"throttle:rate=1000G:ops=1000000000"}, {"fault:rate=0"}, {"fault:from=1P"}, {"delay"},
		{"log"}, {"log:file=" + filepath.Join(t.TempDir(), "log")},
		{"log", "delay:all=0s", "fault:count=0", "throttle:ops=1000000000"},
	} {
		t.Run(strings.Join(texts, " "), func(t *testing.T) {
			exporttest.Run(t, func(tb testing.TB, size int64) nbd.Export {
				return stack(tb, memory(tb, size), texts...)
			})
		})
	}
}

func TestFixedConformance(t *testing.T) {
	for _, texts := range [][]string{
		{"readonly"}, {"checkwrite"}, {"log", "readonly"}, {"readonly", "delay"}, {"checkwrite", "log"},
	} {
		t.Run(strings.Join(texts, " "), func(t *testing.T) {
			exporttest.RunFixed(t, func(tb testing.TB, content []byte) nbd.Export {
				m := memory(tb, int64(len(content)))
				if err := m.WriteAt(context.Background(), content, 0, false); err != nil {
					tb.Fatal(err)
				}
				return stack(tb, m, texts...)
			})
		})
	}
}

// rich has every extra.
type rich struct{ nbd.Export }

func (rich) Trim(context.Context, int64, int64, bool) error                 { return nil }
func (rich) WriteZeroes(context.Context, int64, int64, nbd.ZeroFlags) error { return nil }
func (rich) Slice(int64, int) ([]byte, func(), error)                       { return nil, nil, nil }
func (rich) Stream(context.Context, int64, int64, nbd.Sink) error           { return nil }
func (rich) Starving() bool                                                 { return true }
func (rich) ReadNow([]byte, int64) bool                                     { return true }
func (rich) Description() string                                            { return "rich" }
func (rich) BlockSizes() (uint32, uint32, uint32)                           { return 512, 4096, 0 }
func (rich) Instant() bool                                                  { return true }
func (rich) Unaligned() bool                                                { return true }
func (rich) Batches() bool                                                  { return true }
func (rich) ReadMany(context.Context, []nbd.Span) error                     { return nil }
func (rich) WriteMany(context.Context, []nbd.Span) error                    { return nil }
func (rich) ReadOnly() bool                                                 { return false }
func (rich) Cache(context.Context, int64, int64) error                      { return nil }
func (rich) Map(context.Context, int64, int64, int, []nbd.Extent) ([]nbd.Extent, error) {
	return nil, nil
}

func (rich) Contexts() []nbd.Context {
	return []nbd.Context{{Name: "a:b", Status: func(
		_ context.Context, _, n int64, _ int, dst []nbd.Status,
	) ([]nbd.Status, error) {
		return append(dst, nbd.Status{Len: n, Flags: 7}), nil
	}}}
}

// have names the extras that are there.
func have(e nbd.Extras) string {
	var names []string
	list := []struct {
		name string
		is   bool
	}{
		{"trim", e.Trimmer != nil}, {"zero", e.Zeroer != nil}, {"map", e.Mapper != nil},
		{"slice", e.Slicer != nil}, {"stream", e.Streamer != nil}, {"starve", e.Starver != nil},
		{"now", e.NowReader != nil}, {"describe", e.Describer != nil}, {"size", e.Sizer != nil},
		{"instant", e.Instant != nil}, {"fixed", e.Fixed != nil}, {"context", e.Contexter != nil},
		{"cache", e.Cacher != nil}, {"anywhere", e.Unaligner != nil},
		{"batch", e.Batcher != nil}, {"end", e.Ender != nil},
	}
	if n := reflect.TypeFor[nbd.Extras]().NumField(); n != len(list) {
		panic("an extra is forgotten here: does it lead past filters?")
	}
	for _, one := range list {
		if one.is {
			names = append(names, one.name)
		}
	}
	return strings.Join(names, " ")
}

// TestExtrasPass: each filter keeps what it can see to, and invents nothing.
func TestExtrasPass(t *testing.T) {
	m := memory(t, 4096)
	defer m.Close()
	const seen = "trim zero map stream starve describe size fixed context cache anywhere"
	quick := strings.NewReplacer("size fixed", "size instant fixed").
		Replace(seen)
	for text, want := range map[string]string{
		"delay": seen, "throttle:ops=5": seen,
		"log":   quick,
		"fault": quick,
		"readonly": "map slice stream starve now describe size instant fixed context cache " +
			"anywhere batch",
		"checkwrite": "trim zero map slice stream starve now describe size instant fixed context " +
			"cache anywhere",
	} {
		if got := have(nbd.ExtrasOf(stack(t, rich{m}, text))); got != want {
			t.Errorf("%s has %s\nwant %s", text, got, want)
		}
	}
	type plain struct{ nbd.Export }
	for text, want := range map[string]string{"delay": "", "log": "", "fault": "",
		"throttle:ops=5": "", "readonly": "fixed", "checkwrite": "trim zero"} {
		if got := have(nbd.ExtrasOf(stack(t, plain{m}, text))); got != want {
			t.Errorf("%s on a plain export has %q, want %q", text, got, want)
		}
	}
	contexts := nbd.ExtrasOf(stack(t, rich{m}, "log")).Contexter.Contexts()
	got, err := contexts[0].Status(t.Context(), 0, 9, 1, nil)
	if err != nil || contexts[0].Name != "a:b" || len(got) != 1 || got[0].Flags != 7 {
		t.Errorf("contexts %v: %v, %v", contexts, got, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"": "there is no filter", "slow": "choose of readonly", "readonly:x=1": "takes no x",
		"throttle": "give rate", "throttle:rate=x": "like 64K", "fault:rate=2": "0 to 1",
		"fault:error=EGG": "EIO, ENOSPC", "fault:op=read+x": "read, write", "delay:read=-1s": "negative",
		"fault:from=2:to=1": "nothing lies", "log:file": "key=value", "delay:all=1s:all=1s": "twice",
		"delay:all=1x": "all=1x", "fault:seed=-1": "seed",
	} {
		if f, err := filter.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, %v; want %q", text, f, err, want)
		}
	}
	if got := parse(t, "log:file=/a::b")[0].String(); got != "log:file=/a::b" {
		t.Errorf("String() = %q", got)
	}
}

func TestFault(t *testing.T) {
	ctx := t.Context()
	m := memory(t, 1<<20)
	exp := stack(t, m, "fault:error=enospc:op=write:from=64K:to=128K:after=1:count=2")
	defer exp.Close()
	write := func(off int64, n int) errs.Kind {
		return errs.KindOf(exp.WriteAt(ctx, make([]byte, n), off, false))
	}
	outside := func() {
		for _, off := range []int64{0, 63 << 10, 128 << 10} {
			if k := write(off, 1024); k != 0 {
				t.Errorf("a write at %d: %v", off, k)
			}
		}
	}
	outside()
	if k := write(64<<10, 1); k != 0 {
		t.Errorf("the first one fails: %v", k)
	}
	for range 2 {
		outside()
		if k := write(0, 1<<20); k != errs.NoSpace {
			t.Errorf("a write over it: %v", k)
		}
	}
	if k := write(100<<10, 1); k != 0 {
		t.Errorf("the last one fails: %v", k)
	}
	if err := exp.ReadAt(ctx, make([]byte, 1<<20), 0); err != nil {
		t.Errorf("a read: %v", err)
	}
}

// TestFaultSaysWhere, and the same seed makes the same choices.
func TestFaultSaysWhere(t *testing.T) {
	ctx := t.Context()
	m := memory(t, 1<<20)
	defer m.Close()
	var at *nbd.OffsetError
	err := stack(t, m, "fault:from=4096").ReadAt(ctx, make([]byte, 8192), 0)
	if !asOffset(err, &at) || at.Off != 4096 || errs.KindOf(err) != errs.IO {
		t.Errorf("%v", err)
	}
	run := func(seed string) (out string) {
		exp := stack(t, m, "fault:rate=0.5:seed="+seed)
		for range 200 {
			if exp.Flush(ctx) != nil {
				out += "x"
			} else {
				out += "."
			}
		}
		return out
	}
	a, b, c := run("7"), run("7"), run("8")
	if a != b || a == c {
		t.Errorf("%s\n%s\n%s", a, b, c)
	}
	if n := strings.Count(a, "x"); n < 60 || n > 140 {
		t.Errorf("%d of 200 fail", n)
	}
}

func asOffset(err error, to **nbd.OffsetError) bool {
	e, ok := err.(*nbd.OffsetError)
	*to = e
	return ok
}

// TestThrottle: many at once take no less time than they should.
func TestThrottle(t *testing.T) {
	m := memory(t, 1<<20)
	for _, text := range []string{"throttle:rate=1M:burst=1ms", "throttle:ops=80:burst=1ms"} {
		exp := stack(t, m, text)
		begin := time.Now()
		var wg sync.WaitGroup
		for i := range int64(16) { // 256 KiB in sixteen calls: the last begins after 15/64 s or 15/80 s
			wg.Go(func() {
				if err := exp.ReadAt(context.Background(), make([]byte, 16<<10), i<<14); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(begin); took < 180*time.Millisecond {
			t.Errorf("%s: %v", text, took)
		}
	}
	slow := stack(t, m, "throttle:rate=1:burst=1ms")
	ctx, cancel := context.WithCancel(t.Context())
	_ = slow.ReadAt(ctx, make([]byte, 4096), 0) // takes the next hour
	cancel()
	if err := slow.ReadAt(ctx, make([]byte, 1), 0); err == nil {
		t.Error("it did not wait")
	}
	if err := slow.Close(); err != nil {
		t.Error(err)
	}
}

func TestDelay(t *testing.T) {
	exp := stack(t, memory(t, 4096), "delay:read=30ms:all=1h:flush=0s")
	defer exp.Close()
	begin := time.Now()
	if err := exp.ReadAt(t.Context(), make([]byte, 1), 0); err != nil ||
		time.Since(begin) < 30*time.Millisecond {
		t.Errorf("%v, %v", time.Since(begin), err)
	}
	if err := exp.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := exp.WriteAt(ctx, []byte{1}, 0, false); errs.KindOf(err) != errs.TimedOut {
		t.Errorf("a write of an hour: %v", err)
	}
}

func TestLog(t *testing.T) {
	var out bytes.Buffer
	name := filepath.Join(t.TempDir(), "a:b")
	m := memory(t, 4096)
	exp, err := filter.Stack(m, parse(t, "log", "log:file="+strings.ReplaceAll(name, ":", "::"),
		"fault:op=flush"), filter.Options{Name: "disk one", Logger: slog.New(
		slog.NewTextHandler(&out, nil))})
	if err != nil {
		t.Fatal(err)
	}
	_ = exp.WriteAt(t.Context(), make([]byte, 512), 1024, true)
	_ = exp.Flush(t.Context())
	if err := exp.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(name)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if err != nil || len(lines) != 2 ||
		!strings.Contains(lines[0], `"disk one" write 1024 512 fua=true`) ||
		!strings.HasSuffix(lines[0], " ok") || strings.HasSuffix(lines[1], " ok") {
		t.Errorf("%v: %s", err, text)
	}
	for _, want := range []string{"call=write offset=1024 length=512 fua=true", "call=flush"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is not in %s", want, out.String())
		}
	}
	if _, err := filter.Stack(memory(t, 1), parse(t, "log:file=/no/such/folder/x"),
		filter.Options{}); err == nil {
		t.Error("a log that cannot be opened")
	}
}

func TestCheckWrite(t *testing.T) {
	m := memory(t, 1<<20)
	data := bytes.Repeat([]byte{1, 2, 3, 4}, 100_000)
	if err := m.WriteAt(t.Context(), data, 5, false); err != nil {
		t.Fatal(err)
	}
	exp := stack(t, m, "checkwrite")
	defer exp.Close()
	if err := exp.WriteAt(t.Context(), data, 5, true); err != nil {
		t.Errorf("the same data: %v", err)
	}
	data[399_999]++
	if err := exp.WriteAt(t.Context(), data, 5, false); errs.KindOf(err) != errs.IO {
		t.Errorf("other data: %v", err)
	}
	z := nbd.ExtrasOf(exp).Zeroer
	if err := z.WriteZeroes(t.Context(), 500_000, 500_000, nbd.ZeroFlags{}); err != nil {
		t.Errorf("zeroes: %v", err)
	}
	if err := z.WriteZeroes(t.Context(), 0, 500_000, nbd.ZeroFlags{}); err == nil {
		t.Error("zeroes where there are none")
	}
}
