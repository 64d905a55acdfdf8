package admin

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/activity"
)

// WebOptions of a process's admin address.
type WebOptions struct {
	// Listen is HOST:PORT; port 0 is any. Required.
	Listen string

	// TLS is how who comes to an address beyond loopback proves that it may: it demands a certificate
	// and verifies it. Loopback goes on without. Default nil: only loopback can be listened on.
	TLS *tls.Config

	// Profiles is where profiles are served, which show what is in the process's memory: a listener
	// that other users cannot reach. It belongs to the Web. Default nil: there are none.
	Profiles net.Listener

	// Gather makes the families of this process. It is called for every scrape, by one goroutine at a
	// time or several, and must not wait for the network. Default nil: only what the Go runtime and
	// the kernel know of the process.
	Gather func() []Family

	// Activity tells what the process has done and does, for `sluice top`. It must not wait for the
	// network. Default nil: there is no such page.
	Activity func() *activity.Snapshot

	// Healthy tells what is wrong with the process; nil means nothing. Default nil: it is healthy as
	// long as it answers.
	Healthy func() error

	// Logger hears of scrapes that fail. Default: discard.
	Logger *slog.Logger
}

func (o WebOptions) withDefaults() WebOptions {
	if o.Gather == nil {
		o.Gather = func() []Family { return nil }
	}
	if o.Healthy == nil {
		o.Healthy = func() error { return nil }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Web is a process's admin address:
//
//	/metrics        for Prometheus
//	/healthz        200 and "ok", or 503 and the reason
//	/activity       what the process has done and does, as JSON (activity.Snapshot), without names
//
// and, at WebOptions.Profiles alone,
//
//	/debug/pprof/   profiles
//	/activity       with names of files and clients
//
// Nothing there changes anything. On loopback it is not authenticated: every user of the host can
// see the numbers. Beyond loopback only those whom WebOptions.TLS lets in can, and profiles are
// never there: WebOptions.Profiles is a socket of this host.
type Web struct {
	listener net.Listener
	guard    guard
	servers  []*http.Server
	done     sync.WaitGroup
}

// Limits of the admin address: it is for one or two scrapers.
const (
	webScrapes = 4
	webTimeout = 10 * time.Second
	webHeader  = 16 << 10 // bytes
)

// ServeWeb listens and answers until Close.
func ServeWeb(o WebOptions) (*Web, error) {
	o = o.withDefaults()
	ln, err := o.listen()
	if err == nil && o.Profiles != nil && !private(o.Profiles.Addr()) {
		_ = ln.Close()
		err = errs.Newf(errs.Perm, "admin", o.Profiles.Addr().String(),
			"profiles show memory, and are never beyond loopback")
	}
	if err != nil {
		if o.Profiles != nil {
			_ = o.Profiles.Close()
		}
		return nil, err
	}
	w := &Web{listener: ln}
	var conf *tls.Config
	if !Loopback(o.Listen) {
		conf = o.TLS
	}
	w.serve(ln, conf, o.routes(), o.Logger)
	if o.Profiles != nil {
		w.serve(o.Profiles, nil, o.private(), o.Logger)
	}
	return w, nil
}

// private tells whether only processes of this host reach a listener.
func private(at net.Addr) bool { return at.Network() == "unix" || Loopback(at.String()) }

// URL is where its pages are.
func (w *Web) URL() string {
	scheme := "http://"
	if !Loopback(w.Addr()) {
		scheme = "https://"
	}
	return scheme + w.Addr()
}

// Refused counts those who came to an address beyond loopback and were not let in.
func (w *Web) Refused() uint64 { return w.guard.refused.Load() }

// serve answers at one listener; conf is how who comes proves itself, nil: not at all.
func (w *Web) serve(ln net.Listener, conf *tls.Config, h http.Handler, log *slog.Logger) {
	s := &http.Server{Handler: h, ReadHeaderTimeout: webTimeout, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: webHeader, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	if conf != nil {
		ln, s.Handler = w.guard.before(ln, conf, s, log), w.guard.again(conf, h)
	}
	w.servers = append(w.servers, s)
	w.done.Go(func() {
		if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the admin address is gone", "err", err)
		}
	})
}

// Addr is where it listens.
func (w *Web) Addr() string { return w.listener.Addr().String() }

// Close ends it. A profile under way is cut off when ctx ends.
func (w *Web) Close(ctx context.Context) error {
	var all error
	for _, s := range w.servers {
		err := s.Shutdown(ctx)
		if err != nil {
			err = s.Close()
		}
		all = errors.Join(all, err)
	}
	w.done.Wait()
	return all
}

// routes are the pages. Each Web has a registry of its own: two in one process do not meet.
func (o *WebOptions) routes() http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collector{o.Gather})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn), MaxRequestsInFlight: webScrapes,
		Timeout: webTimeout,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := o.Healthy(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	o.activity(mux, false)
	return mux
}

// activity is the page of what the process does. What files are called is nobody's business but
// that of who may see the private pages.
func (o *WebOptions) activity(mux *http.ServeMux, names bool) {
	if o.Activity == nil {
		return
	}
	mux.HandleFunc("GET /activity", func(w http.ResponseWriter, _ *http.Request) {
		s := o.Activity()
		if !names {
			s.Anonymous()
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(s); err != nil {
			o.Logger.Debug("a page was not delivered", "page", "/activity", "err", err)
		}
	})
}

// private are the pages that show memory, and names.
func (o *WebOptions) private() http.Handler {
	mux := http.NewServeMux()
	o.activity(mux, true)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}
