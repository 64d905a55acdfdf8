package nbd

import (
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// TLS is how clients start TLS and prove who they are.
type TLS struct {
	// Config is the server's side of TLS: its certificate, and whose it takes. Required.
	Config *tls.Config

	// Selective leaves it to the client: without TLS it gets the exports that are for everybody.
	// Default false: before TLS every option but STARTTLS and ABORT is refused.
	Selective bool

	// Names tells who the client is, when the handshake of TLS is over, for Entry.Allow. An error ends
	// the connection. It is asked again by Server.Recheck. Default: CertificateNames.
	Names func(tls.ConnectionState) ([]string, error)
}

// CertificateNames are the names in a client's certificate: the common name of its subject, and its
// alternative names (DNS, email, URI). Without a certificate there are none. Only Config can tell
// that they are true: it must verify certificates that clients show.
func CertificateNames(s tls.ConnectionState) ([]string, error) {
	if len(s.PeerCertificates) == 0 {
		return nil, nil
	}
	cert := s.PeerCertificates[0]
	names := slices.Concat(cert.DNSNames, cert.EmailAddresses)
	if cert.Subject.CommonName != "" {
		names = append(names, cert.Subject.CommonName)
	}
	for _, u := range cert.URIs {
		names = append(names, u.String())
	}
	return names, nil
}

func (t *TLS) namesOf(s tls.ConnectionState) ([]string, error) {
	if t.Names != nil {
		return t.Names(s)
	}
	return CertificateNames(s)
}

// mustSecure tells whether nothing but STARTTLS and ABORT is answered yet.
func (h *handshake) mustSecure() bool {
	t := h.c.srv.cfg.TLS
	return t != nil && !t.Selective && !h.secure
}

// admits tells why the client may not use an export, as the type of a reply; 0: it may.
func (h *handshake) admits(e *Entry) (refusal uint32, why string) {
	switch {
	case !h.secure && (e.TLSOnly || len(e.Allow) > 0):
		return repErrTLSReqd, "this export needs TLS"
	case len(e.Allow) == 0:
		return 0, ""
	case !slices.ContainsFunc(h.names, func(n string) bool { return slices.Contains(e.Allow, n) }):
		return repErrPolicy, "this export is not for the holder of your certificate"
	}
	return 0, ""
}

// find resolves the name of an export for this client. The empty name is the first that it may use.
// Without one the reply says why.
func (h *handshake) find(name string) (sh *shared, refusal uint32, why string) {
	offers := h.c.srv.offers.Load()
	sh = offers.byName[name]
	if sh == nil && name == "" {
		for _, one := range offers.list {
			if no, _ := h.admits(&one.entry); no == 0 {
				return one, 0, ""
			}
		}
	}
	if sh == nil {
		return nil, repErrUnknown, "no such export"
	}
	if refusal, why = h.admits(&sh.entry); refusal != 0 {
		return nil, refusal, why
	}
	return sh, 0, ""
}

// startTLS answers STARTTLS. When it is acknowledged the next bytes are those of TLS, and nothing
// that was negotiated or read before counts any more.
func (h *handshake) startTLS(data optionData) error {
	t := h.c.srv.cfg.TLS
	switch {
	case h.secure:
		h.refuse(optStartTLS, repErrInvalid, "TLS has been started already")
	case data.tooBig || len(data.bytes) != 0:
		h.refuse(optStartTLS, repErrInvalid, "option takes no data")
	case t == nil || !h.fixed:
		h.refuse(optStartTLS, repErrPolicy, "TLS is not configured")
	default:
		return h.upgrade(t)
	}
	return nil
}

func (h *handshake) upgrade(t *TLS) error {
	const op = "nbd.STARTTLS"
	c := h.c
	if c.in.buffered() > 0 {
		// It was sent in the clear, by anybody, to be taken for what came through TLS.
		return errs.Newf(errs.Protocol, op, "", "%d bytes behind it", c.in.buffered())
	}
	h.ack(optStartTLS)
	if err := h.send(); err != nil {
		return err
	}
	under := &cork{Conn: c.nc, pool: c.srv.buffers}
	link := tls.Server(under, t.Config)
	if err := link.HandshakeContext(c.ctx); err != nil {
		return errs.Wrap(op, "", err)
	}
	state := link.ConnectionState()
	names, err := t.namesOf(state)
	if err != nil {
		return errs.Wrap(op, "", err)
	}
	h.state, h.secure, h.names = negotiated{}, true, names
	c.link, c.cork = link, under
	c.in.restart(link)
	c.peer.Store(&state)
	return nil
}

// Recheck asks TLS.Names again for all connections that have started TLS, and cuts those that it
// has an error for now: a certificate was revoked, say.
func (s *Server) Recheck() {
	t := s.cfg.TLS
	if t == nil {
		return
	}
	for _, c := range s.snapshot() {
		state := c.peer.Load()
		if state == nil {
			continue
		}
		if _, err := t.namesOf(*state); err != nil {
			s.cfg.Logger.Warn("nbd: this client is not welcome any more, closing its connection",
				"peer", c.nc.RemoteAddr().String(), "err", err)
			c.cut()
		}
	}
}

// goodbyeMax is how long a peer may take to read that the connection ends.
const goodbyeMax = time.Second

// sayGoodbye tells the end of TLS before that of the socket, as the protocol wants it.
func (c *conn) sayGoodbye() {
	link, ok := c.link.(*tls.Conn)
	if !ok || c.out.failed.Load() {
		return
	}
	_ = c.nc.SetWriteDeadline(time.Now().Add(goodbyeMax))
	_ = link.CloseWrite() // the peer may be gone already
}

// corkBytes is how much of TLS's records gathers before it is written. A record adds some bytes to
// at most 16 KiB of data.
const (
	corkBytes   = 256 << 10
	recordBytes = 64
	recordData  = 16 << 10
)

// cork gathers what TLS writes for one reply or several, one record at a time, so that they leave
// by few system calls.
type cork struct {
	net.Conn

	pool *pool

	mu  sync.Mutex
	buf []byte // what is written waits here; nil: nothing waits
}

// Write implements net.Conn, for TLS.
func (k *cork) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.buf == nil {
		return k.Conn.Write(p)
	}
	if len(k.buf)+len(p) > cap(k.buf) {
		if err := k.flushLocked(); err != nil {
			return 0, err
		}
	}
	if len(p) > cap(k.buf) {
		return k.Conn.Write(p)
	}
	k.buf = append(k.buf, p...)
	return len(p), nil
}

func (k *cork) flushLocked() error {
	if len(k.buf) == 0 {
		return nil
	}
	_, err := k.Conn.Write(k.buf)
	k.buf = k.buf[:0]
	return err
}

// writeThrough writes pieces to the link that stands on the cork.
func (k *cork) writeThrough(link net.Conn, iov [][]byte) (err error) {
	room := 0
	for _, p := range iov {
		room += len(p) + recordBytes*(1+len(p)/recordData)
	}
	buf := k.pool.get(min(room, corkBytes))
	defer k.pool.put(buf)
	k.mu.Lock()
	k.buf = buf[:0]
	k.mu.Unlock()
	for i := 0; i < len(iov) && err == nil; i++ {
		_, err = link.Write(iov[i])
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.flushLocked(); err == nil {
		err = e
	}
	k.buf = nil
	return err
}
