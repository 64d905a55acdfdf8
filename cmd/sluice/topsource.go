package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/admin/top"
	"github.com/sluice-storage/sluice/internal/activity"
	"github.com/sluice-storage/sluice/internal/supervise"
)

// topSource is where sluice top looks: the processes of a cluster's folder, whichever there are at
// that moment, or given addresses.
type topSource struct {
	cluster *cluster // nil: addrs
	addrs   []string

	mu      sync.Mutex
	clients map[string]*http.Client // by socket or address
}

const (
	topAskMax  = 3 * time.Second
	topBodyMax = 64 << 20
)

// name is what is looked at.
func (s *topSource) name() string {
	if s.cluster == nil {
		return strings.Join(s.addrs, " ")
	}
	return s.cluster.dir
}

// look asks all processes at once. One that does not answer is part of the picture.
func (s *topSource) look(ctx context.Context) map[string]top.Sample {
	ctx, cancel := context.WithTimeout(ctx, topAskMax)
	defer cancel()
	all := map[string]top.Sample{}
	addrs := map[string]string{}
	for _, a := range s.addrs {
		addrs[a] = a
	}
	if s.cluster != nil {
		addrs = s.cluster.adminAddrs()
		s.expected(all)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for name, addr := range addrs {
		wg.Go(func() {
			snap, err := s.ask(ctx, name, addr)
			sample := top.Sample{At: time.Now(), Snap: snap}
			if err != nil {
				sample.Problem = err.Error()
			}
			mu.Lock()
			defer mu.Unlock()
			if snap != nil && s.cluster == nil && snap.Process != "" {
				name = fmt.Sprintf("%s %s", snap.Process, addr)
			}
			all[name] = sample
		})
	}
	wg.Wait()
	return all
}

// expected notes the processes that should be there: those that are say more.
func (s *topSource) expected(all map[string]top.Sample) {
	state, err := supervise.ReadState(s.cluster.stateFile())
	held, herr := supervise.Held(s.cluster.lockFile())
	if err != nil || herr != nil {
		return
	}
	for _, p := range state.Processes {
		why := "it is " + string(p.Status)
		switch {
		case !held:
			why = "the cluster is not running"
		case p.Status == supervise.Running:
			why = "it has no admin address"
		}
		all[p.Name] = top.Sample{At: time.Now(), Problem: why}
	}
}

// ask gets what a process tells: at its private socket, with names, or else at its admin address.
func (s *topSource) ask(ctx context.Context, name, addr string) (*activity.Snapshot, error) {
	if s.cluster != nil {
		socket := strings.TrimSuffix(s.cluster.adminFile(name), adminSuffix) + profilesSuffix
		if _, err := os.Stat(socket); err == nil {
			if snap, err := s.get(ctx, "unix", socket); err == nil {
				return snap, nil
			}
		}
	}
	return s.get(ctx, "tcp", addr)
}

func (s *topSource) get(ctx context.Context, network, addr string) (*activity.Snapshot, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://sluice/activity", nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.client(network, addr).Do(req)
	if err != nil {
		var inside *url.Error
		if errors.As(err, &inside) {
			err = inside.Err // the rest is how it was asked
		}
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: it does not tell what it does", resp.Status)
	}
	snap := &activity.Snapshot{}
	if err := json.NewDecoder(io.LimitReader(resp.Body, topBodyMax)).Decode(snap); err != nil {
		return nil, err
	}
	return snap, nil
}

// client is the one for an address: connections are used again.
func (s *topSource) client(network, addr string) *http.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.clients[addr]; c != nil {
		return c
	}
	var d net.Dialer
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, network, addr)
		}}}
	if s.clients == nil {
		s.clients = map[string]*http.Client{}
	}
	s.clients[addr] = c
	return c
}

func (s *topSource) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		c.CloseIdleConnections()
	}
}
