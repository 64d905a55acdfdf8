package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/internal/activity"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/objects"
	"github.com/sluice-storage/sluice/iod/remote"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta/store"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// tcpNetwork is tcp alone.
func tcpNetwork(t *testing.T) *peer.Network {
	t.Helper()
	domain, err := tcp.Open(tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n, err := peer.New(&peer.Providers{Domains: []fabric.Domain{domain}}, msg.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.Close()
		domain.Close()
	})
	return n
}

// usedServer is an I/O server that has been read from and written to.
func usedServer(t *testing.T) *iodServer {
	t.Helper()
	network := tcpNetwork(t)
	mem, err := openMemoryStore(0)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := planMemory(memoryMin, 1)
	if err != nil {
		t.Fatal(err)
	}
	s, err := serveIod(network, iodParts{id: 1, store: mem, plan: plan, listen: "127.0.0.1:0",
		writeBack: true, log: newLogger()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(context.Background()); err != nil {
			t.Error(err)
		}
		mem.Close()
	})
	pool := peer.NewPool(network, func(context.Context, uint32) (string, error) {
		return s.addr(), nil
	})
	t.Cleanup(func() { pool.Close() })
	at := remote.New(pool, remote.Options{})
	t.Cleanup(func() { at.Close() })
	buf := make([]byte, 8192)
	whole := seg.Contig(0, int64(len(buf)))
	memory := &msg.Memory{Windows: []fabric.Sge{{Buf: buf}}, Access: whole}
	target := signedTarget()
	_, err = at.Write(t.Context(), target, whole, memory, stripe.Durable)
	if err == nil {
		_, err = at.Read(t.Context(), target, whole, memory)
	}
	if err != nil {
		t.Fatal(err)
	}
	bad := target
	bad.Cap[0]++
	if _, err := at.Stat(t.Context(), bad); err == nil {
		t.Fatal("a forged capability is taken")
	}
	return s
}

// signedTarget is an object of a server whose key is zero.
func signedTarget() iod.Target {
	var key capability.Key
	c := capability.Capability{File: 1, Gen: 1, Rights: capability.Read | capability.Write, Server: 1,
		Expiry: time.Now().Add(capability.TTLMax)}
	return iod.Target{Server: 1, Object: stripe.ObjectID{File: 1, Gen: 1}, Cap: key.Sign(&c),
		Stamp: wire.Stamp{Gen: 1}}
}

// metaFamilies are those of a metadata service.
func metaFamilies(t *testing.T) []admin.Family {
	t.Helper()
	network := tcpNetwork(t)
	pool := peer.NewPool(network, func(context.Context, uint32) (string, error) { return "", nil })
	t.Cleanup(func() { pool.Close() })
	c := &cluster{}
	names, err := store.New(t.Context(), memkv.New(memkv.Options{}), store.Options{
		Objects: objects.New(remote.New(pool, remote.Options{}), c.key, nil), Log: newLogger()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(names.Stop)
	h, err := newMetaHandler(names, func() error { return nil }, network, newLogger())
	if err != nil {
		t.Fatal(err)
	}
	return h.families()
}

// TestMetricsAreDocumented holds the families of an I/O server, of a metadata service and of
// a mount against docs/ops/iod.md, both ways.
func TestMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "ops", "iod.md"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile("(?m)^\\| `sluice_([a-z0-9_]+)(?:\\{([a-z,]+)\\})?` \\|")
	documented := map[string]string{}
	for _, m := range line.FindAllStringSubmatch(string(text), -1) {
		documented[m[1]] = m[2]
	}
	seen := map[string]bool{}
	mounts := families{all: clientFamilies(client.Stats{}, msg.NodeStats{})}
	mounts.mount(&activity.Snapshot{})
	for _, f := range slices.Concat(usedServer(t).families(), metaFamilies(t), mounts.all) {
		seen[f.Name] = true
		labels, ok := documented[f.Name]
		if !ok || labels != strings.Join(f.Labels, ",") {
			t.Errorf("not in the documentation as it is: | `sluice_%s%s` | %s |", f.Name,
				strings.ReplaceAll("{"+strings.Join(f.Labels, ",")+"}", "{}", ""), f.Help)
		}
		if f.Kind == admin.Counter != strings.HasSuffix(f.Name, "_total") {
			t.Errorf("%s: counters, and nothing else, end in _total", f.Name)
		}
	}
	// What shows only when it happens.
	rare := []string{"msg_ladder_total", "peer_climbed_total", "meta_requests_total",
		"meta_failed_total", "meta_seconds_total"}
	for name := range documented {
		if !seen[name] && !slices.Contains(rare, name) {
			t.Errorf("%s is documented and does not exist", name)
		}
	}
}

func TestMetricsTellWhatHappened(t *testing.T) {
	s := usedServer(t)
	value := func(name string, labels ...string) float64 {
		for _, f := range s.families() {
			for _, x := range f.Series {
				if f.Name == name && slices.Equal(x.Labels, labels) {
					if x.Dist != nil {
						return float64(x.Dist.Count)
					}
					return x.Value
				}
			}
		}
		return -1 // there is none
	}
	for _, want := range []struct {
		name   string
		labels []string
		value  float64
	}{
		{"iod_requests_total", []string{"read"}, 1}, {"iod_requests_total", []string{"write"}, 1},
		{"iod_read_bytes_total", nil, 8192}, {"iod_write_bytes_total", nil, 8192},
		{"iod_capabilities_refused_total", []string{"forged"}, 1}, {"iod_errors_total", nil, 1},
		{"iod_state_seconds", []string{"read", "send"}, 1}, {"memory_bound_bytes", nil, memoryMin},
		{"msg_connections", []string{"tcp"}, 1},
	} {
		// A request is over for its client before the server has counted all of it.
		got := value(want.name, want.labels...)
		for end := time.Now().Add(time.Minute); got != want.value && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
			got = value(want.name, want.labels...)
		}
		if got != want.value {
			t.Errorf("%s %v is %v, want %v", want.name, want.labels, got, want.value)
		}
	}
	var all families
	elsewhere := regexp.MustCompile(
		"^(capabilities_refused|(us|cache|memory|connections|eager|ladder|progress|waits|replies|" +
			"calls|bytes|climbed|refused)_.*)$")
	for _, name := range all.counts(s.handler.Counts()) {
		if !elsewhere.MatchString(name) {
			t.Errorf("%s of the server is no metric", name)
		}
	}
	var named []string
	for _, c := range s.handler.Counts() {
		named = append(named, c.Name)
	}
	for _, want := range []string{"memory_bound_bytes", "memory_plan_cache_bytes"} {
		if !slices.Contains(named, want) {
			t.Errorf("%s is not in the status", want)
		}
	}
}
