package join

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/internal/connlimit"
	"github.com/sluice-storage/sluice/internal/logonce"
	"github.com/sluice-storage/sluice/meta"
)

// Registry is what the service needs of the metadata service, which runs in the same process.
type Registry interface {
	meta.Tokens
	meta.Members
	meta.Denials
}

// Options of a Server.
type Options struct {
	// Authority is the cluster's. Needed.
	Authority *identity.Authority

	// Registry keeps tokens and members. Needed.
	Registry Registry

	// Name is that of the host on which the service runs. Needed.
	Name string

	// Plaintext: the cluster's servers authenticate what they send, and do not encrypt it. Members are
	// told when they join. Default false.
	Plaintext bool

	// Addresses are those of the metadata services, as members are to dial them. Default: none.
	Addresses func() []string

	// Join is where members reach this service, HOST:PORT. Default: the listener's address.
	Join []string

	// Limits bound what strangers can do.
	Limits Limits

	// Refresh is how often changes of the authority's file and of the registry are looked for.
	// Default: 1 s.
	Refresh time.Duration

	// Now is the clock. Default: time.Now.
	Now func() time.Time

	// Log hears of members that join, and once per peer and minute of those that are refused.
	// Default: slog.Default().
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Limits = o.Limits.withDefaults()
	if o.Addresses == nil {
		o.Addresses = func() []string { return nil }
	}
	if o.Refresh == 0 {
		o.Refresh = time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}

// Counts are what the service has done since its start.
type Counts struct {
	Joined  int64 // certificates given for tokens, repetitions included
	Renewed int64
	Notices int64
	Refused int64 // connections, handshakes and requests
}

// Server is the service. Safe for concurrent use.
type Server struct {
	opt   Options
	http  *http.Server
	trust *identity.Trust
	pace  connlimit.Pace
	quiet logonce.Logger

	joined, renewed, notices, refused atomic.Int64

	mu      sync.RWMutex
	own     *tls.Certificate
	ownTill time.Time // when it is made anew
	denied  []identity.Serial
	denials uint64
	join    []string

	stop context.CancelFunc
	done sync.WaitGroup
}

// caller is who the service is for the registry.
var caller = meta.Caller{}

// NewServer makes the service, and begins to follow the registry; Close ends that. An authority
// that is not the one of which the registry knows is refused (errs.Conflict).
func NewServer(ctx context.Context, opt Options) (*Server, error) {
	opt = opt.withDefaults()
	if opt.Authority == nil || opt.Registry == nil {
		return nil, errs.Newf(errs.Invalid, "join.NewServer", "", "Authority and Registry are needed")
	}
	if err := identity.CheckName(opt.Name); err != nil {
		return nil, err
	}
	s := &Server{opt: opt, join: opt.Join, quiet: logonce.Logger{Log: opt.Log},
		pace:  connlimit.Pace{PerSecond: opt.Limits.PerSecond, Burst: opt.Limits.Burst},
		trust: identity.NewTrust(opt.Authority.Cluster(), opt.Authority.Roots()...)}
	if err := s.refresh(ctx); err != nil {
		return nil, errs.Wrap("join.NewServer", "", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc(pathJoin, s.serveJoin)
	mux.HandleFunc(pathRenew, s.serveRenew)
	mux.HandleFunc(pathNotice, s.serveNotice)
	l := opt.Limits
	s.http = &http.Server{Handler: s.guard(mux), ReadTimeout: l.Time, ReadHeaderTimeout: l.Time,
		WriteTimeout: 2 * l.Time, IdleTimeout: l.Idle, MaxHeaderBytes: 4 << 10,
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // no second protocol
		ErrorLog:     log.New(&errorWriter{s}, "", 0)}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.done.Go(func() { s.follow(run) })
	return s, nil
}

// Trust is what the registry and the authority say, of this moment: for other servers of the
// process.
func (s *Server) Trust() *identity.Trust { return s.trust }

// Counts tells what was done.
func (s *Server) Counts() Counts {
	return Counts{Joined: s.joined.Load(), Renewed: s.renewed.Load(), Notices: s.notices.Load(),
		Refused: s.refused.Load()}
}

// Serve answers on a listener until Close. It takes the listener over.
func (s *Server) Serve(ln net.Listener) error {
	s.mu.Lock()
	if len(s.join) == 0 {
		s.join = []string{ln.Addr().String()}
	}
	s.mu.Unlock()
	g := connlimit.New(ln, s.opt.Limits.conns(), s.refuse)
	s.http.ConnState = g.State
	err := s.http.Serve(tls.NewListener(g, s.tls()))
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return errs.Wrap("join.Serve", ln.Addr().String(), err)
}

// Close ends the service; requests that are under way are waited for until ctx ends.
func (s *Server) Close(ctx context.Context) error {
	s.stop()
	err := s.http.Shutdown(ctx)
	s.done.Wait()
	return errs.Wrap("join.Close", "", err)
}

// tls shows the service's certificate and the authorities. Who comes may show one: whoever needs it
// is asked for it by the paths, which tell why it is refused.
func (s *Server) tls() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"},
		ClientAuth: tls.RequestClientCert, SessionTicketsDisabled: true,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return s.certificate()
		}}
}

// certificate is the service's own: in memory only, and made anew long before it ends, or when the
// authority is another.
func (s *Server) certificate() (*tls.Certificate, error) {
	now := s.opt.Now()
	s.mu.RLock()
	own, fresh := s.own, now.Before(s.ownTill)
	s.mu.RUnlock()
	if own != nil && fresh {
		return own, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	own, err := s.opt.Authority.Serve(s.opt.Name, identity.Plan(now), now)
	if err == nil {
		s.own, s.ownTill = own, now.Add(identity.Life/3)
	}
	return own, err
}

// follow looks for changes.
func (s *Server) follow(ctx context.Context) {
	tick := time.NewTicker(s.opt.Refresh)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.refresh(ctx); err != nil && ctx.Err() == nil {
			s.quiet.Warn("this host", "the cluster's keys could not be looked at", "err", err)
		}
	}
}

// refresh takes in what has changed in the authority's file and in the registry.
func (s *Server) refresh(ctx context.Context) error {
	changed, err := s.opt.Authority.Reload()
	if err != nil {
		return err
	}
	if changed {
		s.trust.SetRoots(s.opt.Authority.Roots())
		s.mu.Lock()
		s.own = nil
		s.mu.Unlock()
	}
	r, err := Record(ctx, s.opt.Registry, caller, s.opt.Authority)
	if err != nil {
		return err
	}
	s.mu.RLock()
	same := r.Denials == s.denials
	s.mu.RUnlock()
	if same {
		return nil
	}
	denied, err := ListDenied(ctx, s.opt.Registry, caller)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.denied, s.denials = denied, r.Denials
	s.mu.Unlock()
	s.trust.SetDenied(denied)
	return nil
}

// Record writes the generations of an authority's keys into the registry, if they are not there:
// after a rotation, whatever was interrupted, it may be repeated.
func Record(ctx context.Context, to meta.Denials, c meta.Caller, a *identity.Authority) (
	meta.Registry, error) {
	r, err := to.Registry(ctx, c)
	if err != nil {
		return r, err
	}
	number, pin := a.Generation()
	secrets := a.Secrets()
	for _, x := range []struct {
		what identity.KeyKind
		have meta.Generation
		want meta.Generation
	}{
		{identity.SigningKey, r.Authority,
			meta.Generation{Number: number, Fingerprint: pin, Retired: len(a.Roots()) == 1}},
		{identity.SecretKey, r.Secret, meta.Generation{Number: secrets[0].Generation,
			Fingerprint: secrets[0].Fingerprint(), Retired: len(secrets) == 1}},
	} {
		x.want.Since = x.have.Since
		if x.have == x.want {
			continue
		}
		c.ReqID = meta.Caller{}.ReqID
		if r, err = to.SetGeneration(ctx, c, x.what, x.want); err != nil {
			return r, err
		}
	}
	return r, nil
}

// ListDenied reads the whole deny list.
func ListDenied(ctx context.Context, from meta.Denials, c meta.Caller) (
	all []identity.Serial, err error) {
	var after identity.Serial
	for {
		page, err := from.ListDenied(ctx, c, after, meta.DeniedPageMax)
		if err != nil || len(page) == 0 {
			return all, err
		}
		for i := range page {
			all = append(all, page[i].Serial)
		}
		after = page[len(page)-1].Serial
		if len(all) > identity.DeniedMax {
			return all, errs.Newf(errs.TooBig, "join", "", "more than %d certificates are denied: rotate "+
				"the authority", identity.DeniedMax)
		}
	}
}

// refuse counts and logs.
func (s *Server) refuse(addr, why string) {
	s.refused.Add(1)
	s.quiet.Warn(addr, "refused to join", "why", why)
}

// errorWriter hears of handshakes that fail, from package http.
type errorWriter struct{ s *Server }

func (w *errorWriter) Write(b []byte) (int, error) {
	addr, why := connlimit.ParseErrorLine(string(b))
	w.s.refuse(addr, why)
	return len(b), nil
}

// guard bounds what one address may ask.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !s.pace.Allow(connlimit.Host(r.RemoteAddr)):
			w.Header().Set("Retry-After", "1")
			s.fail(w, r, http.StatusTooManyRequests,
				errs.Newf(errs.Again, "join", "", "too many requests of this address"))
		case r.Method != http.MethodPost:
			s.fail(w, r, http.StatusMethodNotAllowed,
				errs.Newf(errs.Unsupported, "join", "", "this service is for sluice join"))
		default:
			r.Body = http.MaxBytesReader(w, r.Body, requestMax+2) // decode tells of one too many
			next.ServeHTTP(w, r)
		}
	})
}

// fail answers who is refused. Strangers hear no more than they need.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, status int, err error) {
	s.refuse(connlimit.Host(r.RemoteAddr), err.Error())
	w.Header().Set("Connection", "close")
	answer(w, status, failure{errs.KindOf(err), err.Error()})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // who does not listen is not told
}

// statusOf is for people who look with other tools.
func statusOf(err error) int {
	switch errs.KindOf(err) {
	case errs.Perm, errs.Forged, errs.Expired, errs.NotFound, errs.Quota:
		return http.StatusForbidden
	case errs.Exists, errs.Conflict:
		return http.StatusConflict
	case errs.Invalid, errs.Protocol, errs.TooBig, errs.NameTooLong:
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}

func (s *Server) serveJoin(w http.ResponseWriter, r *http.Request) {
	var q joinRequest
	err := decode(r.Body, requestMax, &q)
	var g *identity.Grant
	if err == nil {
		g, err = s.admit(r.Context(), &q)
	}
	if err != nil {
		s.fail(w, r, statusOf(err), err)
		return
	}
	s.joined.Add(1)
	s.opt.Log.Info("joined", "kind", g.Kind, "name", g.Name, "peer", connlimit.Host(r.RemoteAddr))
	answer(w, http.StatusOK, g)
}

// admit gives a certificate for a token. It is written down before it is made.
func (s *Server) admit(ctx context.Context, q *joinRequest) (*identity.Grant, error) {
	if len(q.Secret) != 16 || q.Token == 0 {
		return nil, errs.Newf(errs.Invalid, "join", "", "no token")
	}
	req, err := identity.ParseRequest(q.Request)
	if err != nil {
		return nil, err
	}
	now := s.opt.Now()
	plan := identity.Plan(now)
	use := meta.TokenUse{ID: q.Token, Hash: identity.HashSecret(q.Token, [16]byte(q.Secret)),
		Name: q.Name, Key: req.KeyHash(),
		Certificate: meta.Certificate{Serial: plan.Serial, NotAfter: plan.NotAfter.UnixNano()}}
	m, err := s.opt.Registry.UseToken(ctx, caller, use)
	if errs.KindOf(err) == errs.Invalid && q.Name == "" && q.Suggest != "" { // the token names nobody
		use.Name = q.Suggest
		m, err = s.opt.Registry.UseToken(ctx, caller, use)
	}
	switch errs.KindOf(err) {
	case errs.OK:
		return s.grant(req, &m, plan, now)
	case errs.NotFound, errs.Forged: // which of the two it was is nobody's business
		return nil, errs.Newf(errs.Forged, "join", "", "the token is not known here: it was removed, "+
			"has run out, or is of another cluster")
	}
	return nil, err
}

func (s *Server) grant(req *identity.Request, m *meta.Member, plan identity.NewCertificate,
	now time.Time) (*identity.Grant, error) {
	chain, err := s.opt.Authority.Issue(req, m.Kind, m.Name, plan, now)
	if err != nil {
		return nil, err
	}
	g := &identity.Grant{Cluster: s.opt.Authority.Cluster(), Kind: m.Kind, Name: m.Name,
		Roles: m.Roles, Plaintext: s.opt.Plaintext, Addresses: s.opt.Addresses(), Join: s.joinAt(),
		Certificate: chain, Authorities: identity.RawChain(s.opt.Authority.Roots()), Now: now}
	if m.Kind == identity.Client {
		g.Rights = &m.Rights
	}
	return g, nil
}

func (s *Server) joinAt() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.join
}

// member verifies the certificate that a request came with.
func (s *Server) member(r *http.Request) (identity.Peer, error) {
	var shown []*x509.Certificate
	if r.TLS != nil {
		shown = r.TLS.PeerCertificates
	}
	if len(shown) == 0 {
		return identity.Peer{}, errs.Newf(errs.Perm, "join", "", "show a certificate")
	}
	return s.trust.Verify(identity.RawChain(shown), s.opt.Now(), identity.Host, identity.Client)
}

func (s *Server) serveRenew(w http.ResponseWriter, r *http.Request) {
	var q renewRequest
	var g *identity.Grant
	p, err := s.member(r)
	if err == nil {
		err = decode(r.Body, requestMax, &q)
	}
	if err == nil {
		g, err = s.renew(r.Context(), p, q.Request)
	}
	if err != nil {
		s.fail(w, r, statusOf(err), err)
		return
	}
	answer(w, http.StatusOK, g)
}

func (s *Server) renew(ctx context.Context, p identity.Peer, der []byte) (*identity.Grant, error) {
	req, err := identity.ParseRequest(der)
	if err != nil {
		return nil, err
	}
	now := s.opt.Now()
	plan := identity.Plan(now)
	m, err := s.opt.Registry.RenewMember(ctx, caller, p.Kind, p.Name, p.Serial,
		meta.Certificate{Serial: plan.Serial, NotAfter: plan.NotAfter.UnixNano()})
	if err != nil {
		return nil, err
	}
	s.renewed.Add(1)
	return s.grant(req, &m, plan, now)
}

func (s *Server) serveNotice(w http.ResponseWriter, r *http.Request) {
	var q noticeRequest
	_, err := s.member(r)
	if err == nil {
		err = decode(r.Body, requestMax, &q)
	}
	if err != nil {
		s.fail(w, r, statusOf(err), err)
		return
	}
	answer(w, http.StatusOK, s.notice(q.Denials))
}

func (s *Server) notice(known uint64) *identity.Notice {
	s.notices.Add(1)
	n := &identity.Notice{Authorities: identity.RawChain(s.opt.Authority.Roots()),
		Addresses: s.opt.Addresses(), Join: s.joinAt(), Now: s.opt.Now()}
	s.mu.RLock()
	defer s.mu.RUnlock()
	n.Denials, n.Same = s.denials, known == s.denials
	if !n.Same {
		n.Denied = s.denied
	}
	return n
}

// Renew implements identity.Source for the process that has the authority itself.
func (s *Server) Renew(ctx context.Context, c *identity.Credential, request []byte) (
	*identity.Grant, error) {
	p, err := s.trust.Verify(c.TLS().Certificate, s.opt.Now(), identity.Host, identity.Client)
	if err != nil {
		return nil, err
	}
	return s.renew(ctx, p, request)
}

// Notice implements identity.Source for the process that has the authority itself.
func (s *Server) Notice(_ context.Context, c *identity.Credential, denials uint64) (
	*identity.Notice, error) {
	if _, err := s.trust.Verify(c.TLS().Certificate, s.opt.Now(), identity.Host,
		identity.Client); err != nil {
		return nil, err
	}
	return s.notice(denials), nil
}

var (
	_ identity.Source = (*Server)(nil)
	_ io.Writer       = (*errorWriter)(nil)
)
