package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
)

// rounds is how many writes and as many reads a lone caller makes, one after the other.
const rounds = 100

// TestWaysOfProgress writes and reads through a cluster with each way of progress at both sides,
// and finds in the counters that the way was taken.
func TestWaysOfProgress(t *testing.T) {
	bin := linkSelf(t)
	for _, way := range []msg.Progress{msg.ProgressAny, msg.ProgressPoll, msg.ProgressThread} {
		t.Run(way.String(), func(t *testing.T) {
			s := newSession(t, bin)
			s.play("exec sluice up -d --dir c --iods 1 --mem --listen 127.0.0.1:0 --progress " +
				way.String() + "\nuse c\nexec sluice status --dir c\n" +
				"stdout 'progress of meta, iod1: " + way.String() + "'\n")
			cluster, err := openCluster(s.dir + "/c")
			if err != nil {
				t.Fatal(err)
			}
			opts := client.Options{Peer: peer.Options{
				Progress: way, Secret: &tcp.Secret{File: cluster.secretFile()}}}
			seen := exchange(t, s.env["SLUICE_URL"], opts)
			server := theServer(t, cluster)
			checkWay(t, way, seen, server)
			// Who spins for 2 ms finds its answer so, unless the machine is busy with something
			// else, and then it needs more rounds until it has often enough.
			spun, until := seen.Waits.Spun, time.Now().Add(time.Minute)
			for way == msg.ProgressPoll && min(spun, server.Count("waits_spun")) < rounds/4 {
				if time.Now().After(until) {
					t.Fatalf("%d waits of the client and %d of the server were over while spinning",
						spun, server.Count("waits_spun"))
				}
				spun += exchange(t, s.env["SLUICE_URL"], opts).Waits.Spun
				server = theServer(t, cluster)
			}
		})
	}
}

// theServer is what a cluster's only I/O server reports, when it answers.
func theServer(t *testing.T, c *cluster) *admin.Server {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		r, err := c.report(t.Context(), &providersFlag{})
		switch {
		case err != nil:
			t.Fatal(err)
		case len(r.Servers) == 1 && r.Servers[0].Problem == "":
			return &r.Servers[0]
		case time.Now().After(end):
			t.Fatalf("the server does not answer: %+v", r)
		}
	}
}

// exchange writes and reads, and tells what the client's connections have seen.
func exchange(t *testing.T, url string, opts client.Options) msg.NodeStats {
	t.Helper()
	ctx := t.Context()
	fs, err := client.Dial(ctx, url, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer fs.Close()
	f, err := fs.OpenFile(ctx, "/file", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rounds {
		data := []byte(strings.Repeat(fmt.Sprintf("%08d", i), 512))
		got := make([]byte, len(data))
		_, err := f.WriteAt(ctx, data, int64(i*len(data)))
		if err == nil {
			_, err = f.ReadAt(ctx, got, int64(i*len(data)))
		}
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("round %d: %v, equal %v", i, err, bytes.Equal(got, data))
		}
	}
	return fs.Network()
}

// checkWay holds the counters of a client and of its server against the way that was asked for.
func checkWay(t *testing.T, way msg.Progress, seen msg.NodeStats, server *admin.Server) {
	t.Helper()
	t.Logf("client: %+v; server: %d handed, %d spun, %d slept", seen, server.Count("calls_handed"),
		server.Count("waits_spun"), server.Count("waits_slept"))
	if seen.Progress != way || server.Count(admin.ProgressPrefix+way.String()) != 1 {
		t.Errorf("asked for %v: the client has %v, the server %+v", way, seen.Progress, server.Counts)
	}
	threaded := way == msg.ProgressThread
	// A lone caller reads its own replies, and a server serves where it polls, but for the few
	// times that a pause made another goroutine take over.
	if woken := seen.Woken > rounds; woken != threaded {
		t.Errorf("%d replies of %d calls woke their caller", seen.Woken, 2*rounds)
	}
	if handed := server.Count("calls_handed") > rounds; handed != threaded {
		t.Errorf("%d calls of %d were handed to workers", server.Count("calls_handed"), 2*rounds)
	}
}
