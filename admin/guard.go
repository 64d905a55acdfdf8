package admin

import (
	"crypto/tls"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/connlimit"
	"github.com/sluice-storage/sluice/internal/logonce"
)

// Beyond loopback an admin address is for members of the cluster alone, who prove that they are by
// TLS (WebOptions.TLS). What strangers can make it do there is bounded, and those who are refused
// are logged once per address and minute, and counted.

// webConns bounds the connections beyond loopback; see webScrapes.
const (
	webConns     = 64
	webPerAddr   = 16
	webHandshake = 16
)

// guard is what stands before an address beyond loopback.
type guard struct {
	refused atomic.Uint64
	quiet   logonce.Logger
}

// Loopback tells whether only processes of this host reach an address HOST:PORT.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// listen opens the admin address: in the clear on loopback, by TLS elsewhere, or not at all.
func (o *WebOptions) listen() (net.Listener, error) {
	if !Loopback(o.Listen) && o.TLS == nil {
		return nil, errs.Newf(errs.Perm, "admin", o.Listen, "refusing to listen there: other hosts "+
			"could reach it, and without certificates nothing asks them who they are")
	}
	ln, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, errs.Newf(errs.KindOf(err), "admin", o.Listen, "%w", err)
	}
	return ln, nil
}

// before puts the guard before a listener, and has the server tell it of handshakes.
func (g *guard) before(ln net.Listener, conf *tls.Config, s *http.Server, to *slog.Logger,
) net.Listener {
	g.quiet.Log = to
	limited := connlimit.New(ln, connlimit.Limits{Conns: webConns, ConnsPerAddr: webPerAddr,
		Handshakes: webHandshake}, g.refuse)
	s.ConnState, s.ReadTimeout = limited.State, webTimeout
	s.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){} // no second protocol
	s.ErrorLog = log.New(g, "", 0)
	return tls.NewListener(limited, conf)
}

func (g *guard) refuse(addr, why string) {
	g.refused.Add(1)
	g.quiet.Warn(addr, "refused at the admin address", "why", why)
}

// Write implements io.Writer: it hears of handshakes that fail, from package http.
func (g *guard) Write(b []byte) (int, error) {
	g.refuse(connlimit.ParseErrorLine(string(b)))
	return len(b), nil
}

// again asks at each request whether who connected is still believed: connections live long.
func (g *guard) again(conf *tls.Config, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if verify := conf.VerifyConnection; verify != nil {
			if err := verify(*r.TLS); err != nil {
				g.refuse(connlimit.Host(r.RemoteAddr), err.Error())
				w.Header().Set("Connection", "close")
				http.Error(w, "not let in any more", http.StatusForbidden)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}
