package meta

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
	"github.com/sluice-storage/sluice/meta/store"
)

// counted is a ceiling that only looks at transactions, which must be valid.
type counted struct{ n, synced atomic.Int64 }

func (c *counted) Commit(t *kv.Txn) error {
	c.n.Add(1)
	if t.Sync {
		c.synced.Add(1)
	}
	return t.Validate()
}

func (*counted) Settle(time.Duration) {}
func (*counted) Close() error         { return nil }

// serviceHere is a bench of a service in this process, without I/O servers: what needs none of
// their data can be done.
func serviceHere(t *testing.T) (*Bench, *counted) {
	engine := memkv.New(memkv.Options{})
	s, err := store.New(t.Context(), engine,
		store.Options{Objects: metatest.NewObjects(), HeartbeatMax: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	srv := meta.Server{ID: 1, Addr: "a", StoreID: 1}
	err = s.Join(t.Context(), srv, meta.SignJoin(capability.Key{}.ServerKey(1), &srv))
	if err != nil {
		t.Fatal(err)
	}
	fs, err := client.New(s, struct{ client.DataService }{}, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = fs.Close()
		s.Stop()
		_ = engine.Close()
	})
	var asked atomic.Uint64
	ceiling := &counted{}
	return &Bench{Files: 200, Handles: 30,
		Start: func(context.Context) (*Site, error) {
			return &Site{FS: fs, Idle: 10 << 20,
				CPU:      func() (a, b time.Duration, err error) { return 0, 0, nil },
				Requests: func(context.Context) (a, b uint64, err error) { return asked.Add(1), 0, nil },
				Memory:   func() (int64, error) { return 20 << 20, nil },
				Compact:  func(context.Context) (int64, error) { return 100 * 203, nil },
			}, nil
		},
		OpenBare: func() (Bare, error) { return ceiling, nil }}, ceiling
}

var brief = bench.Budget{Rounds: 2, Round: 10 * time.Millisecond}

func TestChangesAreMeasuredBesidePebble(t *testing.T) {
	b, ceiling := serviceHere(t)
	b.By = []string{Service}
	cases, err := bench.Choose(b.Cases(),
		[]string{"make-d8", "make-sync-d8", "make-many-d32", "create-d1", "rename-d8", "unlink-d8"})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := bench.RunAll(t.Context(), brief, cases)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		r := bench.Rows(rows).Find(c.Name, Service, "")
		if r == nil || r.Value <= 0 || r.Ceiling != Pebble || r.Ratio <= 0 {
			t.Errorf("%s: %+v", c.Name, r)
		}
		for _, m := range []string{bench.TotalCPU, bench.ServiceCPU, bench.NameMsgs, bench.DataMsgs} {
			if bench.Rows(rows).Find(c.Name, Service, m) == nil {
				t.Errorf("%s: nothing is said about %s", c.Name, m)
			}
		}
	}
	if all, synced := ceiling.n.Load(), ceiling.synced.Load(); synced == 0 || synced >= all {
		t.Errorf("%d of %d transactions of the ceiling were synced", synced, all)
	}
}

func TestManyFilesAndHandles(t *testing.T) {
	b, _ := serviceHere(t)
	rows, err := bench.RunAll(t.Context(), brief, b.BigCases())
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		name, metric string
		low, high    float64
	}{
		{bigIdle, bench.Memory, 10, 10},
		{bigDirectory, bench.Rate, 1, 1e9},
		{bigDirectory, bench.EndToStart, 1e-6, 1e6},
		{bigDirectory, bench.ListEntries, 1, 1e9},
		{bigDirectory, bench.ListMemory, 0, 1000},
		{bigHandles, bench.Latency, 1e-3, 1e9},
		{bigHandles, bench.EndToStart, 1e-6, 1e6},
		{bigBytes, bench.FileBytes, 99, 101}, // 200 files, two directories, one file with handles
	}
	for _, w := range want {
		r := bench.Rows(rows).Find(w.name, Service, w.metric)
		if r == nil || r.Value < w.low || r.Value > w.high {
			t.Errorf("%s of %s: %+v", w.metric, w.name, r)
		}
	}
	// A second look at what is kept: nothing was made twice.
	st, err := b.site.FS.Meta().StatFS(t.Context(), meta.RootIno)
	if err != nil || st.Files != 204 {
		t.Errorf("%d files, want the root, two directories, 200 files and one; %v", st.Files, err)
	}
}

// TestPromisesNameCases: a promise about a case that is not there would be left out in silence.
func TestPromisesNameCases(t *testing.T) {
	b, _ := serviceHere(t)
	all := append(b.Cases(), b.BigCases()...)
	chosen, err := bench.Choose(all, FigureCases())
	if err != nil || len(chosen) != len(FigureCases()) {
		t.Fatalf("%d of %d cases; %v", len(chosen), len(FigureCases()), err)
	}
	var rows bench.Rows
	for _, c := range chosen {
		for _, by := range c.Contenders {
			for _, m := range []string{c.Metric, bench.TotalCPU, bench.NameMsgs, bench.EndToStart,
				bench.ListMemory} {
				rows = append(rows, bench.Row{Case: c.Name, Provider: by.Provider, Metric: m, Value: 1,
					Ratio: 1})
			}
		}
	}
	if judged := bench.Judge(Promises(), rows); len(judged) != len(Promises()) {
		t.Errorf("%d of %d promises are about what is measured", len(judged), len(Promises()))
	}
}

func TestOnlyWhoIsAskedFor(t *testing.T) {
	b := &Bench{By: []string{Client}}
	for _, c := range b.Cases() {
		if slices.ContainsFunc(c.Contenders, func(by bench.Contender) bool {
			return by.Provider == Service
		}) {
			t.Errorf("%s is done by %s", c.Name, Service)
		}
	}
}

// idlers is a crowd on a service in this process.
type idlers struct {
	beats atomic.Uint64
	stop  context.CancelFunc
	over  sync.WaitGroup
}

func (c *idlers) Beats() uint64           { return c.beats.Load() }
func (c *idlers) Interval() time.Duration { return 20 * time.Millisecond }
func (c *idlers) Close() error {
	c.stop()
	c.over.Wait()
	return nil
}

func startIdlers(names meta.Service, n int) (*idlers, error) {
	ctx, stop := context.WithCancel(context.Background())
	c := &idlers{stop: stop}
	for range n {
		info, err := names.NewSession(ctx, "idle")
		if err != nil {
			return nil, err
		}
		c.over.Go(func() {
			for ctx.Err() == nil {
				if _, err := names.Listen(ctx, meta.Listening{Session: info.ID, WaitMs: 20}); err == nil {
					c.beats.Add(1)
				}
			}
		})
	}
	return c, nil
}

// TestManyClients: memory is told for each client, time and heartbeats for each interval.
func TestManyClients(t *testing.T) {
	b, _ := serviceHere(t)
	b.Clients = 20
	start := b.Start
	var cpu, memory atomic.Int64
	b.Start = func(ctx context.Context) (*Site, error) {
		s, err := start(ctx)
		s.Memory = func() (int64, error) { return 20<<20 + memory.Swap(20*100<<10), nil }
		s.CPU = func() (a, b time.Duration, err error) {
			return time.Duration(cpu.Add(int64(time.Second))), 0, nil
		}
		s.Crowd = func(_ context.Context, n int) (Crowd, error) { return startIdlers(s.FS.Meta(), n) }
		return s, err
	}
	rows, err := bench.RunAll(t.Context(), brief, b.ClientCases())
	if err != nil {
		t.Fatal(err)
	}
	r := bench.Rows(rows).Find(bigClients, Service, "")
	if r == nil || r.Value != 100 || r.Unit != "KiB" {
		t.Errorf("memory of each: %+v", r)
	}
	for _, m := range []string{bench.Memory, bench.BeatCPU, bench.Beats} {
		if r := bench.Rows(rows).Find(bigClients, Service, m); r == nil || r.Value <= 0 {
			t.Errorf("%s: %+v", m, r)
		}
	}
	figures := bench.Judge(b.ClientPromises(), rows)
	if len(figures) != len(b.ClientPromises()) {
		t.Errorf("%d figures", len(figures))
	}
}
