package join

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
)

// askMax bounds one question and its answer.
const askMax = 20 * time.Second

// Joined is what a joiner has become.
type Joined struct {
	Credential *identity.Credential

	// Ahead is how far the cluster's clock is before that of this host, negative: behind it; 0 where
	// they agree to identity.Skew.
	Ahead time.Duration
}

// Join makes a member of who has a token, with a key that stays here. name is what it wants to be
// called; empty: what the token says, and where that says nothing, suggest. It may be repeated with
// the same key. Nothing is sent before the server at addr has proved that it has the authority that
// the token pins (errs.Perm).
func Join(ctx context.Context, addr string, t identity.Token, name, suggest string,
	key ed25519.PrivateKey) (*Joined, error) {
	const op = "join.Join"
	request, err := identity.NewRequest(key)
	if err != nil {
		return nil, err
	}
	var server identity.Peer
	conf := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"},
		InsecureSkipVerify: true, // by names of machines; the token says who it must be
		VerifyConnection: func(s tls.ConnectionState) (err error) {
			server, err = identity.VerifyPinned(identity.RawChain(s.PeerCertificates), t.Pin, time.Now())
			return err
		}}
	g := &identity.Grant{}
	err = ask(ctx, conf, addr, pathJoin,
		joinRequest{Token: t.ID, Secret: t.Secret[:], Name: name, Suggest: suggest, Request: request},
		g)
	if err != nil {
		return nil, errs.Wrap(op, addr, err)
	}
	c, err := identity.NewCredential(key, g)
	if err != nil {
		return nil, errs.Wrap(op, addr, err)
	}
	if c.Cluster != server.Cluster || c.Kind != t.Kind || name != "" && c.Name != name {
		return nil, errs.Newf(errs.Protocol, op, addr, "the server has made %s of it", c.Peer().Who)
	}
	c.Token = t.ID
	j := &Joined{Credential: c}
	if d := time.Until(g.Now); d.Abs() > identity.Skew {
		j.Ahead = d
	}
	return j, nil
}

// Remote is an identity.Source that asks over the network, at the addresses that the credential
// names, one after the other.
type Remote struct{}

// Renew implements identity.Source.
func (Remote) Renew(ctx context.Context, c *identity.Credential, request []byte) (
	*identity.Grant, error) {
	g := &identity.Grant{}
	return g, askMember(ctx, c, pathRenew, renewRequest{request}, g)
}

// Notice implements identity.Source.
func (Remote) Notice(ctx context.Context, c *identity.Credential, denials uint64) (
	*identity.Notice, error) {
	n := &identity.Notice{}
	return n, askMember(ctx, c, pathNotice, noticeRequest{denials}, n)
}

var _ identity.Source = Remote{}

// askMember asks as a member, whose credential says whom to believe.
func askMember(ctx context.Context, c *identity.Credential, path string, q, to any) error {
	trust := identity.NewTrust(c.Cluster, c.Roots()...)
	conf := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"},
		Certificates:       []tls.Certificate{*c.TLS()},
		InsecureSkipVerify: true, // by names of machines; Verify says who it must be
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := trust.Verify(identity.RawChain(s.PeerCertificates), time.Now(), identity.Host)
			return err
		}}
	err := errs.Newf(errs.Invalid, "join", "", "the credential names nobody who could be asked")
	for _, addr := range c.Join {
		err = ask(ctx, conf, addr, path, q, to)
		switch errs.KindOf(err) {
		case errs.Disconnected, errs.TimedOut, errs.Shutdown, errs.IO, errs.Again:
			continue // the next one may be there
		}
		return err
	}
	return err
}

// ask sends one document and reads one.
func ask(ctx context.Context, conf *tls.Config, addr, path string, q, to any) error {
	ctx, cancel := context.WithTimeout(ctx, askMax)
	defer cancel()
	body, err := json.Marshal(q)
	if err != nil {
		return errs.New(errs.Invalid, "join", addr, err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+addr+path,
		bytes.NewReader(body))
	if err != nil {
		return errs.New(errs.Invalid, "join", addr, err)
	}
	r.Header.Set("Content-Type", "application/json")
	way := &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true, Proxy: nil,
		MaxResponseHeaderBytes: 8 << 10}
	defer way.CloseIdleConnections()
	resp, err := (&http.Client{Transport: way, CheckRedirect: noRedirect}).Do(r)
	if err != nil {
		return explain(addr, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return decode(resp.Body, answerMax, to)
	}
	var f failure
	if err := decode(resp.Body, requestMax, &f); err != nil || f.Kind == errs.OK || !f.Kind.Valid() {
		return errs.Newf(errs.Protocol, "join", addr, "the server answers %s", resp.Status)
	}
	return errs.Newf(f.Kind, "", "", "%s", strings.TrimPrefix(f.Text, f.Kind.String()+": "))
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// explain gives an error of the network its kind.
func explain(addr string, err error) error {
	kind := errs.KindOf(err)
	text := err.Error()
	switch {
	case kind == errs.Perm || kind == errs.TimedOut || kind == errs.Canceled:
	case strings.Contains(text, "server gave HTTP response") ||
		strings.Contains(text, "does not look like a TLS handshake") ||
		strings.Contains(text, "no application protocol"): // a service of the cluster, not this one
		return errs.Newf(errs.Protocol, "join", addr, "no join service listens there: %w", err)
	case kind == errs.IO:
		kind = errs.Disconnected
	}
	return errs.New(kind, "join", addr, err)
}

// CheckAddress refuses what is no HOST:PORT.
func CheckAddress(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil || host == "" || strings.ContainsAny(host, "/?#@ ") {
		return errs.Newf(errs.Invalid, "join", "", "%.200q is no address: write HOST:PORT", addr)
	}
	return nil
}
