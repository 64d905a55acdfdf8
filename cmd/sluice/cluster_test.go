package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	benchnet "github.com/sluice-storage/sluice/bench/net"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/msg"
)

func TestClusterFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "c")
	if _, err := openCluster(dir); !errors.Is(err, errs.NotFound) {
		t.Fatalf("absent folder: %v", err)
	}
	made, err := createCluster(dir, clusterConfig{Iods: 2, Listen: defaultListen})
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "cluster.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("key: %v, %v", info.Mode(), err)
	}
	for _, name := range []string{"meta", "iod1", "iod2", "log", "run"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || !info.IsDir() {
			t.Errorf("%s: %v", name, err)
		}
	}
	opened, err := openCluster(dir)
	if err != nil {
		t.Fatal(err)
	}
	if opened.key != made.key || !reflect.DeepEqual(opened.cfg, made.cfg) || opened.clusterID() == 0 {
		t.Fatalf("made %+v, opened %+v", made.cfg, opened.cfg)
	}
	other, err := createCluster(filepath.Join(t.TempDir(), "d"), clusterConfig{Iods: 1})
	if err != nil || other.key == made.key || other.cfg.ID == made.cfg.ID {
		t.Fatalf("two clusters share key or id: %v", err)
	}
}

func TestDamagedFolders(t *testing.T) {
	for name, c := range map[string]struct {
		file, text string
		want       errs.Kind
	}{
		"no JSON":    {"cluster.json", "{", errs.Corrupt},
		"newer":      {"cluster.json", `{"format": 2, "id": "0123456789abcdef"}`, errs.Version},
		"no id":      {"cluster.json", `{"format": 1, "id": "xyz"}`, errs.Version},
		"short key":  {"cluster.key", "00ff\n", errs.Corrupt},
		"no hex key": {"cluster.key", "zz\n", errs.Corrupt},
	} {
		dir := t.TempDir()
		if _, err := createCluster(dir, clusterConfig{Iods: 1}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := openCluster(dir); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestRoomOfASharedDiskIsCountedOnce(t *testing.T) {
	for _, mem := range []bool{false, true} {
		c, err := createCluster(t.TempDir(), clusterConfig{Iods: 3, Mem: mem})
		if err != nil {
			t.Fatal(err)
		}
		want := 3
		if mem {
			want = 1
		}
		if got := c.sharers(2); got != want {
			t.Errorf("mem %v: %d share the disk, want %d", mem, got, want)
		}
	}
}

func TestMemoryClusterForgetsItsNames(t *testing.T) {
	for _, mem := range []bool{false, true} {
		c, err := createCluster(t.TempDir(), clusterConfig{Iods: 1, Mem: mem})
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(c.metaDir(), "names")
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := c.clean(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(name); (err != nil) != mem {
			t.Errorf("mem %v: %v", mem, err)
		}
	}
}

// TestReachWaitsForAServiceThatStarts begins to listen only after the first attempts were refused.
func TestReachWaitsForAServiceThatStarts(t *testing.T) {
	domain, err := tcp.Open(tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer domain.Close()
	ln, err := net.Listen("tcp", "127.0.0.77:0") // where nobody else listens meanwhile
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	node, err := msg.NewNode(msg.Options{Domain: domain})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	begin := time.Now()
	if err := reach(t.Context(), domain, addr); !errors.Is(err, errs.Disconnected) ||
		time.Since(begin) < reachMax {
		t.Fatalf("nobody there: %v after %v", err, time.Since(begin))
	}
	started := make(chan error, 1)
	go func() {
		time.Sleep(300 * time.Millisecond)
		_, err := node.Serve(addr, benchnet.EchoHandler(), msg.ServeOptions{})
		started <- err
	}()
	err = reach(t.Context(), domain, addr)
	if serveErr := <-started; serveErr != nil || err != nil {
		t.Fatalf("a service that starts: %v, %v", err, serveErr)
	}
}
