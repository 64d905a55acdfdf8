package attach

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-storage/sluice/errs"
)

func TestPlace(t *testing.T) {
	p := Place{Dir: filepath.Join(t.TempDir(), "attach")}
	if names, err := p.List(); err != nil || len(names) > 0 {
		t.Errorf("%v, %v", names, err)
	}
	s := &Spec{Name: "v", Target: "sluice://h:1/v", Device: -1, Args: []string{"attach", "v"}}
	if _, err := p.Spec("v"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if err := p.Make(s); err != nil {
		t.Fatal(err)
	}
	if st, err := p.State("v"); err != nil || st.Connected {
		t.Errorf("%+v, %v", st, err)
	}
	if err := p.SetState("v", &State{Index: 3, Connected: true}); err != nil {
		t.Fatal(err)
	}
	got, err := p.Spec("v")
	if err != nil || !got.Same(s) || got.Args[1] != "v" {
		t.Errorf("%+v, %v", got, err)
	}
	if st, err := p.State("v"); err != nil || st.Index != 3 || !st.Connected {
		t.Errorf("%+v, %v", st, err)
	}
	if names, err := p.List(); err != nil || len(names) != 1 || names[0] != "v" {
		t.Errorf("%v, %v", names, err)
	}
	if err := p.Remove("v"); err != nil {
		t.Error(err)
	}
	if err := p.Remove("v"); err != nil {
		t.Errorf("twice: %v", err)
	}
	if left, _ := os.ReadDir(p.Dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestSameSpec(t *testing.T) {
	s := Spec{Name: "v", Target: "a", Device: 2}
	for name, c := range map[string]struct {
		o    Spec
		same bool
	}{
		"any device":     {Spec{Name: "v", Target: "a", Device: -1}, true},
		"that device":    {Spec{Name: "v", Target: "a", Device: 2}, true},
		"another device": {Spec{Name: "v", Target: "a", Device: 1}, false},
		"another target": {Spec{Name: "v", Target: "b", Device: -1}, false},
		"read-only":      {Spec{Name: "v", Target: "a", Device: -1, ReadOnly: true}, false},
		"shared":         {Spec{Name: "v", Target: "a", Device: -1, Shared: true}, false},
	} {
		if s.Same(&c.o) != c.same {
			t.Errorf("%s", name)
		}
	}
}

func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{"db": true, "a.b-c_1": true, "": false, "../x": false,
		"a/b": false, ".x": false, "a.lock": false, "a.new": false, "-x": false} {
		if err := CheckName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestTurns: of many who attach the same device one has the turn at a time, and no file is left.
func TestTurns(t *testing.T) {
	p := Place{Dir: t.TempDir()}
	var all sync.WaitGroup
	var inside atomic.Int32
	for range 10 {
		all.Go(func() {
			for range 20 {
				unlock, err := p.Lock(context.Background(), "v")
				if err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("two have the turn")
				}
				inside.Add(-1)
				unlock()
			}
		})
	}
	all.Wait()
	if left, _ := os.ReadDir(p.Dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	unlock, err := p.Lock(t.Context(), "v")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Lock(ctx, "v"); errs.KindOf(err) != errs.Canceled {
		t.Errorf("%v", err)
	}
}

// TestStandingBy: who waits to serve comes when the one before has ended, and not for a device that
// is gone.
func TestStandingBy(t *testing.T) {
	p := Place{Dir: t.TempDir()}
	if _, err := p.Serve(t.Context(), "v", false); errs.KindOf(err) != errs.NotFound {
		t.Errorf("of no device: %v", err)
	}
	if err := p.Make(&Spec{Name: "v"}); err != nil {
		t.Fatal(err)
	}
	end, err := p.Serve(t.Context(), "v", false)
	if err != nil || !p.Served("v") {
		t.Fatal(err)
	}
	if _, err := p.Serve(t.Context(), "v", false); errs.KindOf(err) != errs.Busy {
		t.Errorf("a second one: %v", err)
	}
	came := make(chan error, 1)
	var second func()
	go func() {
		var err error
		second, err = p.Serve(context.Background(), "v", true)
		came <- err
	}()
	end()
	if err := <-came; err != nil || !p.Served("v") {
		t.Fatalf("the one that waits does not come: %v", err)
	}
	go func() {
		_, err := p.Serve(context.Background(), "v", true)
		came <- err
	}()
	if err := p.Remove("v"); err != nil {
		t.Fatal(err)
	}
	second()
	if err := <-came; errs.KindOf(err) != errs.NotFound {
		t.Errorf("for a device that is gone: %v", err)
	}
	if p.Served("v") {
		t.Error("somebody serves it")
	}
}
