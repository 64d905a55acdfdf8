package keeper

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
)

// long is a time that nothing here takes.
const long = time.Minute

// kept is a keeper at work.
type kept struct {
	t     *testing.T
	dir   string
	lives string
	ready chan string
	ask   chan chan<- error
	stop  context.CancelFunc
	over  chan error
}

// keep starts a keeper whose processes do what acts says, one word for each.
func keep(t *testing.T, acts string, change func(*Options)) *kept {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root mounts without a helper")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	k := &kept{t: t, dir: t.TempDir(), lives: filepath.Join(t.TempDir(), "lives"),
		ready: make(chan string, 1), ask: make(chan chan<- error), over: make(chan error, 1)}
	ctx, stop := context.WithCancel(context.Background())
	k.stop = stop
	o := Options{Dir: k.dir, Name: "test", Path: self, GiveUp: long, StopMax: 200 * time.Millisecond,
		Upgrades: k.ask, Ready: func(text string) { k.ready <- text },
		Env: append(os.Environ(), actsEnv+"="+acts, livesEnv+"="+k.lives)}
	if change != nil {
		change(&o)
	}
	go func() { k.over <- Run(ctx, o) }()
	t.Cleanup(func() {
		stop()
		k.ended()
		if k.mounted() {
			t.Error("it is still mounted")
		}
	})
	return k
}

// ended returns how Run has ended, again and again.
func (k *kept) ended() error {
	k.t.Helper()
	select {
	case err := <-k.over:
		k.over <- err
		return err
	case <-time.After(long):
		k.t.Fatal("the keeper does not end")
		return nil
	}
}

func (k *kept) mounted() bool {
	text, err := os.ReadFile("/proc/self/mountinfo")
	return err != nil || strings.Contains(string(text), " "+k.dir+" ")
}

// begun are the processes that were started.
func (k *kept) begun() []string {
	text, _ := os.ReadFile(k.lives)
	return strings.Fields(string(text))
}

// served waits until a process serves, for the first time.
func (k *kept) served(want string) {
	k.t.Helper()
	select {
	case text := <-k.ready:
		if text != want {
			k.t.Fatalf("%q serves, want %q", text, want)
		}
	case err := <-k.over:
		k.over <- err
		k.t.Fatalf("ended: %v", err)
	case <-time.After(long):
		k.t.Fatal("nobody serves")
	}
}

// upgrade asks for another process.
func (k *kept) upgrade() error {
	k.t.Helper()
	answer := make(chan error, 1)
	select {
	case k.ask <- answer:
	case <-time.After(long):
		k.t.Fatal("the keeper takes no request")
	}
	select {
	case err := <-answer:
		return err
	case <-time.After(long):
		k.t.Fatal("no answer")
		return nil
	}
}

// upgraded asks until the process that is being started serves.
func (k *kept) upgraded() {
	k.t.Helper()
	for end := time.Now().Add(long); ; {
		err := k.upgrade()
		if err == nil {
			return
		}
		if errs.KindOf(err) != errs.Again || time.Now().After(end) {
			k.t.Fatal(err)
		}
		wait.Sleep(context.Background(), 10*time.Millisecond)
	}
}

// TestServedAndStopped: a mount is there when somebody serves it, and gone when the keeper ends.
func TestServedAndStopped(t *testing.T) {
	k := keep(t, "serve", func(o *Options) { o.StopMax = long })
	k.served("life 1")
	if !k.mounted() {
		t.Fatal("it is not mounted")
	}
	k.stop()
	if err := k.ended(); err != nil || k.mounted() || len(k.begun()) != 1 {
		t.Fatalf("%v, mounted: %v, %v", err, k.mounted(), k.begun())
	}
}

// TestUnmountedByAnybody: who unmounts ends the keeper and the process, without an error.
func TestUnmountedByAnybody(t *testing.T) {
	k := keep(t, "serve", nil)
	k.served("life 1")
	if err := syscall.Unmount(k.dir, 0); err != nil {
		t.Fatal(err)
	}
	if err := k.ended(); err != nil {
		t.Fatal(err)
	}
}

// TestNeverServed: a mount that the first process does not come to serve is not there, and whoever
// wanted it hears why: from the process, or how it ended.
func TestNeverServed(t *testing.T) {
	for acts, want := range map[string]string{
		"mute":    "exit status 3",
		"die":     "exit status 4",
		"fail":    "it does not work",
		"half":    "no message",
		"long":    "no message",
		"nothing": "says nothing",
		"silent":  "signal: killed",
		"early":   `"serving" at this moment`,
	} {
		t.Run(acts, func(t *testing.T) {
			k := keep(t, acts, nil)
			err := k.ended()
			if err == nil || !strings.Contains(err.Error(), want) || k.mounted() {
				t.Fatalf("%v, mounted: %v; want %q", err, k.mounted(), want)
			}
			var failed *Failure
			if errors.As(err, &failed) != (acts == "fail") || failed != nil &&
				failed.Advice != "try it later" {
				t.Fatalf("%#v", err)
			}
			if n := len(k.begun()); n != 1 {
				t.Fatalf("%d processes were started", n)
			}
		})
	}
}

// TestServedAgain: processes that die are replaced, those too that die at once again and again, or
// say nonsense, as long as one serves in the end.
func TestServedAgain(t *testing.T) {
	for _, acts := range []string{"crash,serve", "crash,crash,crash,crash,serve",
		"crash,mute,fail,die,serve", "crash,half,long,nothing,silent,serve"} {
		t.Run(acts, func(t *testing.T) {
			k := keep(t, acts, nil)
			k.served("life 1")
			for last, end := strings.Count(acts, ",")+1, time.Now().Add(long); len(k.begun()) < last; {
				if time.Now().After(end) {
					t.Fatalf("%d processes were started, want %d", len(k.begun()), last)
				}
				wait.Sleep(context.Background(), 10*time.Millisecond)
			}
			k.upgraded() // by the last one
			if !k.mounted() {
				t.Fatal("the mount was lost")
			}
			k.stop()
			if err := k.ended(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestGivesUp: when no process comes to serve again the mount is taken away, also from one that is
// there and does nothing, and the error says what the last one said.
func TestGivesUp(t *testing.T) {
	for acts, want := range map[string]string{
		"crash,fail":  "it does not work",
		"crash,mute":  "within",
		"crash,sleep": "within",
	} {
		t.Run(acts, func(t *testing.T) {
			t.Parallel()
			k := keep(t, acts, func(o *Options) { o.GiveUp = 5 * time.Second })
			k.served("life 1")
			err := k.ended()
			if err == nil || !strings.Contains(err.Error(), "taken away") ||
				!strings.Contains(err.Error(), want) || k.mounted() {
				t.Fatalf("%v, mounted: %v", err, k.mounted())
			}
			if acts != "crash,sleep" && len(k.begun()) < 3 {
				t.Fatalf("it was tried %d times", len(k.begun()))
			}
		})
	}
}

// TestHandsOver: each upgrade is another process, and the mount stays; who asks while nobody serves
// gets an answer, too.
func TestHandsOver(t *testing.T) {
	k := keep(t, "serve", nil)
	k.served("life 1")
	for range 3 {
		k.upgraded()
	}
	if lives := k.begun(); len(lives) != 4 || !k.mounted() {
		t.Fatalf("%v, mounted: %v", lives, k.mounted())
	}
}

// TestDoesNotHandOver: one that cannot goes on to serve, and says why; of one that does not answer
// it is said after a time.
func TestDoesNotHandOver(t *testing.T) {
	k := keep(t, "stubborn", nil)
	k.served("life 1")
	for range 2 {
		if err := k.upgrade(); err == nil || !strings.Contains(err.Error(), "not the moment") {
			t.Fatal(err)
		}
	}
	d := keep(t, "deaf", func(o *Options) { o.HandMax = 50 * time.Millisecond })
	d.served("life 1")
	if err := d.upgrade(); errs.KindOf(err) != errs.TimedOut {
		t.Fatal(err)
	}
	if len(k.begun()) != 1 || len(d.begun()) != 1 || !k.mounted() || !d.mounted() {
		t.Fatal("they were replaced")
	}
}

// TestHangs: a process that is stopped does not keep the keeper from ending.
func TestHangs(t *testing.T) {
	k := keep(t, "hang", nil)
	k.served("life 1")
	k.stop()
	if err := k.ended(); err != nil {
		t.Fatal(err)
	}
}

// TestOptions: what a keeper cannot do without is asked for.
func TestOptions(t *testing.T) {
	good := Options{Dir: "/d", Name: "n", Path: "/p"}
	for name, change := range map[string]func(*Options){
		"dir": func(o *Options) { o.Dir = "" }, "name": func(o *Options) { o.Name = "" },
		"path": func(o *Options) { o.Path = "" }, "time": func(o *Options) { o.EndMax = -1 },
	} {
		bad := good
		change(&bad)
		if err := Run(t.Context(), bad); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
