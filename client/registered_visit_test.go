//go:build cgo && linux && (amd64 || arm64)

package client

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/verbs"
	"github.com/sluice-storage/sluice/meta/store"
	"github.com/sluice-storage/sluice/peer"
)

// Two programs on two machines with RDMA devices, which vmtest/transport starts: one runs
// TestRegisteredServe with the host to listen on in serveEnv, and prints where it is; the other
// runs TestRegisteredVisit with that.
const (
	serveEnv = "SLUICE_CLIENT_SERVE"
	visitEnv = "SLUICE_CLIENT_VISIT"
)

// TestRegisteredServe is a cluster that is reached by verbs alone, until it is killed.
func TestRegisteredServe(t *testing.T) {
	host := os.Getenv(serveEnv)
	if host == "" {
		t.Skip("is a program that vmtest/transport starts")
	}
	d, err := verbs.Open(verbs.Options{})
	must(t, err)
	w := newWiredOn(t, 2, []fabric.Domain{d}, func(string) string {
		return net.JoinHostPort(host, "0")
	}, store.Options{})
	fmt.Println("serving", strings.TrimPrefix(w.addr, peer.Verbs+":"))
	select {}
}

// TestRegisteredVisit runs registeredCases over verbs, and some of them where grants are
// registrations of their own, for want of memory windows.
func TestRegisteredVisit(t *testing.T) {
	addr := os.Getenv(visitEnv)
	if addr == "" {
		t.Skip("needs a server, which vmtest/transport starts")
	}
	for _, c := range append(registeredCases(), registeredCase{"forked", 0, testForked}) {
		t.Run("verbs/"+c.name, func(t *testing.T) { c.visit(t, addr, verbs.Options{}) })
	}
	for _, c := range registeredCases()[:4] {
		t.Run("verbs-registrations/"+c.name, func(t *testing.T) {
			c.visit(t, addr, verbs.Options{NoWindows: true})
		})
	}
}

func (c *registeredCase) visit(t *testing.T, addr string, opts verbs.Options) {
	d, err := verbs.Open(opts)
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	fs := dialRegistered(t, addr, Options{Register: c.register,
		Providers: &peer.Providers{Domains: []fabric.Domain{d}},
		Logger:    slog.New(slog.NewTextHandler(t.Output(), nil))})
	c.run(t, fs)
	must(t, fs.Remove(t.Context(), fileName(t)))
}

// testForked has a child that shares the memory of this process, as after a fork without exec, and
// writes to registered memory while it is there. Where the kernel left the pages to the child the
// device would go on with those.
func testForked(t *testing.T, fs *FS) {
	f, want := newFile(t, fs, 1<<20)
	p := make([]byte, 1<<20)
	for range 2 {
		readAll(t, f, p, want)
	}
	before := now(fs)
	for i := range 3 {
		child := forkAndPause(t)
		fill(p, rand.New(rand.NewPCG(5, uint64(i))))
		copy(want, p)
		write(t, f, p, 0)
		clear(p)
		readAll(t, f, p, want)
		must(t, syscall.Kill(child, syscall.SIGKILL))
		_, err := syscall.Wait4(child, nil, 0, nil)
		must(t, err)
	}
	before.wantHits(t, fs, "a process that forks")
}

// forkAndPause makes a child with a copy of this process's memory that does nothing. It must not
// run any of Go's: only one of the threads is there.
func forkAndPause(t *testing.T) int {
	t.Helper()
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	for pid == 0 {
		_, _, _ = syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0) // until it is killed
	}
	return int(pid)
}
