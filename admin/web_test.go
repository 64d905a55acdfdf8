package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-storage/sluice/internal/activity"
)

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	// A transport of its own, so that no idle connection outlives the test.
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	r, err := (&http.Client{Transport: tr}).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

func families() []Family {
	return []Family{
		One(Gauge, "memory_bytes", "What is planned.", 512),
		{Name: "requests_total", Help: "Requests.", Kind: Counter, Labels: []string{"op"},
			Series: []Series{{Labels: []string{"read"}, Value: 7}, {Labels: []string{"write"}, Value: 2}}},
		{Name: "state_seconds", Help: "Time.", Kind: Histogram, Labels: []string{"state"},
			Series: []Series{{Labels: []string{"disk"}, Dist: &Dist{Count: 3, Sum: 0.5,
				Bounds: []float64{0.001, 0.1}, Counts: []uint64{1, 2}}}}},
	}
}

func TestPages(t *testing.T) {
	defer goleak.VerifyNone(t)
	var sick atomic.Bool
	w, err := ServeWeb(WebOptions{Listen: "127.0.0.1:0", Gather: families, Healthy: func() error {
		if sick.Load() {
			return errors.New("the disk is gone")
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close(context.Background())
	base := "http://" + w.Addr()
	code, text := get(t, base+"/metrics")
	for _, want := range []string{"sluice_memory_bytes 512", `sluice_requests_total{op="read"} 7`,
		`sluice_state_seconds_bucket{state="disk",le="0.1"} 2`,
		`sluice_state_seconds_bucket{state="disk",le="+Inf"} 3`,
		`sluice_state_seconds_sum{state="disk"} 0.5`,
		"# TYPE sluice_requests_total counter", "go_goroutines ", "process_resident_memory_bytes "} {
		if code != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%d: no %q in\n%s", code, want, text)
		}
	}
	if code, text := get(t, base+"/healthz"); code != http.StatusOK || text != "ok\n" {
		t.Errorf("healthy: %d %q", code, text)
	}
	sick.Store(true)
	if code, text := get(t, base+"/healthz"); code != http.StatusServiceUnavailable ||
		!strings.Contains(text, "the disk is gone") {
		t.Errorf("sick: %d %q", code, text)
	}
}

// TestProfilesHaveAnAddressOfTheirOwn: all users of the host reach the admin address.
func TestProfilesHaveAnAddressOfTheirOwn(t *testing.T) {
	defer goleak.VerifyNone(t)
	private, err := net.Listen("tcp", "127.0.0.1:0") // instead of a socket with a mode
	if err != nil {
		t.Fatal(err)
	}
	w, err := ServeWeb(WebOptions{Listen: "127.0.0.1:0", Profiles: private})
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer w.Close(context.Background())
	for url, want := range map[string]int{
		w.Addr() + "/debug/pprof/":                                 http.StatusNotFound,
		w.Addr() + "/debug/pprof/heap":                             http.StatusNotFound,
		w.Addr() + "/metrics":                                      http.StatusOK,
		w.Addr() + "/healthz":                                      http.StatusOK,
		w.Addr() + "/":                                             http.StatusNotFound,
		private.Addr().String() + "/metrics":                       http.StatusNotFound,
		private.Addr().String() + "/debug/pprof/goroutine?debug=1": http.StatusOK,
	} {
		if code, _ := get(t, "http://"+url); code != want {
			t.Errorf("%s: %d, want %d", url, code, want)
		}
	}
}

// TestActivity: what a process does is told to everybody, names only to who may see them.
func TestActivity(t *testing.T) {
	defer goleak.VerifyNone(t)
	private, err := net.Listen("tcp", "127.0.0.1:0") // instead of a socket with a mode
	if err != nil {
		t.Fatal(err)
	}
	w, err := ServeWeb(WebOptions{Listen: "127.0.0.1:0", Profiles: private,
		Activity: func() *activity.Snapshot {
			return &activity.Snapshot{Process: "meta", Peers: []activity.Peer{{ID: 1, Name: "secret"}},
				Clients: []activity.Use{{ID: 1, Name: "secret"}},
				Slow:    []activity.Slow{{Op: "make", Name: "secret"}},
				Running: []activity.Slow{{Op: "make", Name: "secret"}}}
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close(context.Background())
	for addr, names := range map[string]int{w.Addr(): 0, private.Addr().String(): 4} {
		code, text := get(t, "http://"+addr+"/activity")
		var s activity.Snapshot
		if err := json.Unmarshal([]byte(text), &s); err != nil || code != http.StatusOK ||
			s.Process != "meta" || len(s.Slow) != 1 || strings.Count(text, "secret") != names {
			t.Errorf("%d %s, %v", code, text, err)
		}
	}
}

// A family that breaks its own promise spoils the scrape, and not the process.
func TestABrokenFamilyIsTold(t *testing.T) {
	defer goleak.VerifyNone(t)
	w, err := ServeWeb(WebOptions{Listen: "127.0.0.1:0", Gather: func() []Family {
		return []Family{{Name: "bad", Help: "Bad.", Labels: []string{"op"}, Series: []Series{{Value: 1}}}}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close(context.Background())
	if code, text := get(t, "http://"+w.Addr()+"/metrics"); code != http.StatusInternalServerError {
		t.Errorf("%d %s", code, text)
	}
}
