package capi

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/config"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/join"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
)

// environment is what the commands of sluice look at, too: SLUICE_URL, SLUICE_CREDENTIAL,
// SLUICE_SECRET_FILE, SLUICE_PROVIDERS and SLUICE_PROGRESS. It comes from C with each connection:
// what Go knows of the environment is what it was when the library was loaded.
type environment struct{ url, credential, secret, providers, progress string }

// readEnvironment is an array of texts in that order.
func readEnvironment(s Space, addr uintptr) (e environment, err error) {
	if addr == 0 {
		return e, nil
	}
	to := []*string{&e.url, &e.credential, &e.secret, &e.providers, &e.progress}
	f, err := copyOf(s, "the environment", addr, 8*len(to))
	for i := 0; i < len(to) && err == nil; i++ {
		*to[i], _, err = text(s, f.pointer())
	}
	return e, err
}

const scheme = "sluice://"

// conn is a connection: a client, and who works with it.
type conn struct {
	lib    *Lib
	fs     *client.FS
	handle Handle

	life    context.Context // of its calls
	stop    context.CancelFunc
	calls   atomic.Int64  // under way
	closing atomic.Bool   // no more of them begin
	idle    chan struct{} // closing is set, and there are no calls any more
	owners  atomic.Uint64 // of locks, so far
}

// enter begins a call; leave ends it.
func (c *conn) enter() bool {
	c.calls.Add(1)
	if c.closing.Load() {
		c.leave()
		return false
	}
	return true
}

func (c *conn) leave() {
	if c.calls.Add(-1) == 0 && c.closing.Load() {
		select {
		case c.idle <- struct{}{}:
		default:
		}
	}
}

// conn finds a connection and begins a call.
func (l *Lib) conn(h Handle) (*conn, error) {
	c, err := get[*conn](&l.objects, kindConn, h)
	if err == nil && !c.enter() {
		err = badHandle(kindConn, h)
	}
	return c, err
}

// target is where a cluster is, and how this process proves itself to it.
type target struct {
	url                string
	credential, secret string // files; may be empty
}

// locate finds out what where means: see sluice_connect in sluice.h.
func locate(where string, o *options, e *environment) (t target, err error) {
	t.credential, t.secret = cmp.Or(o.credential, e.credential), cmp.Or(o.secret, e.secret)
	where = cmp.Or(where, e.url)
	switch {
	case strings.HasPrefix(where, scheme):
		t.url = where
	case where != "":
		return locateFolder(where, t)
	default:
		t.url = scheme + config.DefaultListen
		c, _, _, err := join.Locate(t.credential, "")
		if err == nil && c != nil && len(c.Addresses) > 0 {
			t.url = scheme + c.Addresses[0]
		}
	}
	host, _, _ := strings.Cut(strings.TrimPrefix(t.url, scheme), "/")
	if _, _, err := net.SplitHostPort(host); err != nil {
		return t, fail(syscall.EINVAL, "%s is no address of a cluster, which is like sluice://%s", t.url,
			config.DefaultListen)
	}
	return t, nil
}

// locateFolder is locate for a cluster's folder on this host.
func locateFolder(dir string, t target) (target, error) {
	if strings.Contains(dir, "://") {
		return t, fail(syscall.EINVAL, "%s is no address of a cluster: it begins with %s", dir, scheme)
	}
	addr, err := os.ReadFile(filepath.Join(dir, "run", "meta.addr"))
	if errors.Is(err, os.ErrNotExist) {
		return t, fail(syscall.ENOENT, "%s is no folder of a cluster that runs here (sluice up --dir %s)",
			dir, dir)
	}
	if err != nil {
		return t, errs.Wrap("sluice_connect", dir, err)
	}
	t.url = scheme + strings.TrimSpace(string(addr))
	isFile := func(name string) bool {
		st, err := os.Stat(name)
		return err == nil && st.Mode().IsRegular()
	}
	if name := filepath.Join(dir, "host.json"); t.credential == "" && isFile(name) {
		t.credential = name
	}
	if name := filepath.Join(dir, tcp.SecretName); t.secret == "" && isFile(name) {
		t.secret = name
	}
	return t, nil
}

// clientOptions are those of the client for what a program has asked for.
func (t *target) clientOptions(o *options, e *environment) (c client.Options, err error) {
	c = client.Options{Name: o.name, Buffers: int(o.buffers), Retain: int64(o.retain),
		Register: int64(o.pinned), WaitMax: o.wait, Credential: t.credential}
	if t.secret != "" || o.trustLocal {
		c.Peer.Secret = &tcp.Secret{File: t.secret, Optional: o.trustLocal}
	}
	if names := cmp.Or(o.providers, e.providers); names != "" {
		c.Peer.Use = strings.Split(names, ",")
		for _, name := range c.Peer.Use {
			if !slices.Contains(peer.Names(), name) {
				return c, fail(syscall.EINVAL, "there is no provider %s; choose of %s", name,
					strings.Join(peer.Names(), ","))
			}
		}
	}
	way := cmp.Or(o.progress, e.progress, msg.ProgressAny.String())
	ways := []msg.Progress{msg.ProgressAny, msg.ProgressPoll, msg.ProgressThread}
	i := slices.IndexFunc(ways, func(p msg.Progress) bool { return p.String() == way })
	if i < 0 {
		return c, fail(syscall.EINVAL, "there is no way of progress %s", way)
	}
	c.Peer.Progress = ways[i]
	return c, nil
}

// Connect is sluice_connect.
func (l *Lib) Connect(where, optionsAt, env uintptr) (Handle, error) {
	name, _, err := text(l.space, where)
	if err != nil {
		return 0, err
	}
	e, err := readEnvironment(l.space, env)
	if err != nil {
		return 0, err
	}
	o, err := readOptions(l.space, optionsAt)
	if err != nil {
		return 0, err
	}
	t, err := locate(name, &o, &e)
	if err != nil {
		return 0, err
	}
	opts, err := t.clientOptions(&o, &e)
	if err != nil {
		return 0, err
	}
	return l.dial(t.url, opts)
}

func (l *Lib) dial(url string, opts client.Options) (Handle, error) {
	c := &conn{lib: l, idle: make(chan struct{}, 1)}
	c.life, c.stop = context.WithCancel(context.Background())
	var err error
	if c.fs, err = client.Dial(c.life, url, opts); err != nil {
		c.stop()
		return 0, err
	}
	c.fs.Prepare()
	if c.handle, err = l.objects.add(kindConn, c); err != nil {
		c.stop()
		return 0, errors.Join(err, c.fs.Close())
	}
	l.mu.Lock()
	l.conns[c] = struct{}{}
	l.mu.Unlock()
	return c.handle, nil
}

// Disconnect is sluice_disconnect.
func (l *Lib) Disconnect(h Handle) error {
	c, err := take[*conn](&l.objects, kindConn, h)
	if err != nil {
		return err
	}
	return c.close()
}

// close ends a connection. Calls under way end first, because they work with memory that goes with
// it; then all that belongs to it.
func (c *conn) close() error {
	l := c.lib
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
	c.calls.Add(1)
	c.closing.Store(true)
	c.stop()
	c.leave()
	for c.calls.Load() > 0 {
		<-c.idle
	}
	for _, v := range l.objects.removeIf(func(v any) bool {
		o, ok := v.(owned)
		return ok && o.owner() == c
	}) {
		if q, ok := v.(*queue); ok {
			q.close()
		}
	}
	for _, o := range l.lent.endAll(c) {
		o.free()
	}
	return c.fs.Close()
}

// owned is an object that goes with its connection.
type owned interface{ owner() *conn }

// CloseAll ends every connection, when the process ends.
func (l *Lib) CloseAll() error {
	l.mu.Lock()
	var all []*conn
	for c := range l.conns {
		all = append(all, c)
	}
	l.mu.Unlock()
	var failed []error
	for _, c := range all {
		if l.objects.remove(c.handle) != nil {
			failed = append(failed, c.close())
		}
	}
	return errors.Join(failed...)
}
