package attach

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"

	"github.com/sluice-storage/sluice/errs"
)

// Server is where a server that speaks NBD is, and which of its exports is meant.
type Server struct {
	Network string // tcp or unix
	Addr    string // HOST:PORT, or the path of a socket
	Export  string
	Secure  bool // TLS is started
}

// defaultPort is where NBD servers listen.
const defaultPort = "10809"

// IsServer tells whether a text means a server.
func IsServer(text string) bool {
	scheme, _, ok := strings.Cut(text, "://")
	scheme = strings.TrimSuffix(scheme, "+unix")
	return ok && (scheme == "nbd" || scheme == "nbds")
}

// ParseServer reads nbd://HOST[:PORT]/EXPORT and nbd+unix:///EXPORT?socket=PATH; nbds and nbds+unix
// mean that TLS is started.
func ParseServer(text string) (Server, error) {
	bad := func(why string) (Server, error) {
		return Server{}, errs.Newf(errs.Invalid, "attach.ParseServer", text, "%s", why)
	}
	u, err := url.Parse(text)
	if err != nil {
		return bad(err.Error())
	}
	s := Server{Network: "tcp", Export: strings.TrimPrefix(u.Path, "/"),
		Secure: strings.HasPrefix(u.Scheme, "nbds")}
	switch u.Scheme {
	case "nbd", "nbds":
		if u.Hostname() == "" {
			return bad("it names no host")
		}
		port := u.Port()
		if port == "" {
			port = defaultPort
		}
		s.Addr = net.JoinHostPort(u.Hostname(), port)
	case "nbd+unix", "nbds+unix":
		s.Network, s.Addr = "unix", u.Query().Get("socket")
		if s.Addr == "" {
			return bad("it names no socket")
		}
	default:
		return bad("it begins neither with nbd:// nor with nbds://")
	}
	return s, nil
}

// String is the server as it is written.
func (s Server) String() string {
	scheme := "nbd"
	if s.Secure {
		scheme = "nbds"
	}
	name := strings.ReplaceAll(url.PathEscape(s.Export), "%2F", "/")
	if s.Network == "unix" {
		return scheme + "+unix:///" + name + "?socket=" + url.QueryEscape(s.Addr)
	}
	return scheme + "://" + s.Addr + "/" + name
}

// Remote is a Source of a server: what goes through the kernel's pair of sockets is passed on. TLS
// ends in this process.
type Remote struct {
	at     Server
	secure *tls.Config // nil: without TLS
}

// NewRemote makes a source of a server. secure is for servers with TLS.
func NewRemote(at Server, secure *tls.Config) *Remote {
	if !at.Secure {
		secure = nil
	}
	return &Remote{at: at, secure: secure}
}

// reach connects and chooses the export.
func (r *Remote) reach(ctx context.Context) (raw, far net.Conn, e Export, err error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeMax)
	defer cancel()
	var d net.Dialer
	if raw, err = d.DialContext(ctx, r.at.Network, r.at.Addr); err != nil {
		return nil, nil, e, errs.Wrap("attach.reach", r.at.String(), err)
	}
	if far, e, err = negotiate(ctx, raw, r.at.Export, r.secure); err != nil {
		_ = raw.Close()
		return nil, nil, e, errs.Wrap("attach.reach", r.at.String(), err)
	}
	return raw, far, e, nil
}

// Link implements Source.
func (r *Remote) Link(ctx context.Context) (*Link, error) {
	raw, far, e, err := r.reach(ctx)
	if err != nil {
		return nil, err
	}
	l, near, err := newLink()
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	l.Export = e
	var both sync.WaitGroup
	pass := func(to, from net.Conn) {
		// Whatever ends one direction ends the connection: the kernel sends its requests again.
		// Between sockets the kernel moves the bytes; through TLS they are copied.
		_, _ = io.Copy(to, from)
		l.shut()
	}
	both.Go(func() { pass(near, far) })
	both.Go(func() { pass(far, near) })
	l.start(func() {
		_ = raw.Close()
		_ = near.Close()
		both.Wait()
	})
	return l, nil
}

// Size implements Source: it asks the server as a client that comes anew, and leaves again.
func (r *Remote) Size(ctx context.Context) (int64, error) {
	raw, far, e, err := r.reach(ctx)
	if err != nil {
		return 0, err
	}
	defer raw.Close()
	// A request to disconnect, without an answer: magic, no flags, command 2, and nothing else.
	var bye [28]byte
	copy(bye[:], "\x25\x60\x95\x13\x00\x00\x00\x02")
	_, _ = far.Write(bye[:]) // it is polite, and no more
	return e.Size, nil
}

// Lost implements Source: a server that is away may come back.
func (r *Remote) Lost() error { return nil }

// Close implements Source.
func (r *Remote) Close() error { return nil }
