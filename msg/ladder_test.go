package msg

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/shm"
	"github.com/sluice-storage/sluice/fabric/sim"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/wire"
)

func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1:9400":             "127.0.0.1:9400",
		"tcp:127.0.0.1:9400":         "127.0.0.1:9400",
		"tcp:[::1]:1,shm:/run/x":     "tcp:[::1]:1,shm:/run/x",
		"unix:/run/x,host:1":         "shm:/run/x,tcp:host:1",
		"verbs:10.0.0.1:9,shm:@a":    "verbs:10.0.0.1:9,shm:@a",
		"server":                     "server",
		"tcp:":                       "",
		"":                           "",
		"a:1,,b:2":                   "",
		"a:1,b:2":                    "",
		strings.Repeat("shm:/a,", 9): "",
		strings.Repeat("x", 2000):    "",
	} {
		all, err := parseAddress(text, nil)
		if want == "" {
			if errs.KindOf(err) != errs.Invalid {
				t.Errorf("%.20q: %v, %v", text, all, err)
			}
			continue
		}
		if got := formatAddress(all, "tcp"); err != nil || got != want {
			t.Errorf("%q became %q, %v; want %q", text, got, err, want)
		}
	}
}

// TestAddressesOfTheLastStep: what names no provider is for the node's last step, whatever that is.
func TestAddressesOfTheLastStep(t *testing.T) {
	has := []string{"shm", "verbs"}
	for text, want := range map[string]string{
		"10.0.0.1:9":                    "verbs:10.0.0.1:9",
		"verbs:[fe80::1%eth0]:9":        "verbs:[fe80::1%eth0]:9",
		"10.0.0.1:9,tcp:10.0.0.1:8":     "verbs:10.0.0.1:9,tcp:10.0.0.1:8",
		"10.0.0.1:9,verbs:10.0.0.1:8":   "",
		"verbs:10.0.0.1:9,10.0.0.1:8":   "",
		"verbs:10.0.0.1:9,verbs:a:9":    "",
		"shm:/x,10.0.0.1:9,tcp:a:1,b:2": "",
	} {
		all, err := parseAddress(text, has)
		got := ""
		if err == nil {
			got = formatAddress(all, "verbs")
		}
		if got != want || want == "" && errs.KindOf(err) != errs.Invalid {
			t.Errorf("%q became %q, %v; want %q", text, got, err, want)
		}
	}
}

// TestLadderPlaces: a step is where the address puts it, or else where the server says; one that
// listens everywhere is at the host that the last step has reached.
func TestLadderPlaces(t *testing.T) {
	s := newSteps(t, nil)
	for _, row := range []struct{ addr, offer, want string }{
		{"10.0.0.1:1", "10.0.0.2:7", "10.0.0.2:7"},
		{"10.0.0.1:1", "0.0.0.0:7", "10.0.0.1:7"},
		{"tcp:[fe80::1]:1", "[::]:7", "[fe80::1]:7"},
		{"host:1", ":7", "host:7"},
		{"10.0.0.1:1", "unix:/x", "unix:/x"},
		{"10.0.0.1:1", "unix:@x", "unix:@x"},
		{"10.0.0.1:1,shm:/mine", "unix:/x", "unix:/mine"},
	} {
		places, err := parseAddress(row.addr, s.client.providers())
		if err != nil {
			t.Fatal(err)
		}
		k := climb{node: s.client, places: places}
		if got := k.where(s.client.rungs[0], &offer{at: row.offer}); got != row.want {
			t.Errorf("%s, offered %s: %s, want %s", row.addr, row.offer, got, row.want)
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	f.Add("tcp:127.0.0.1:9400,shm:/run/x,verbs:10.0.0.1:9400")
	f.Add("unix:@x,host:1")
	f.Add("tcp:tcp:")
	f.Add("tcp:shm:1")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseAddress(text, nil)
		if err != nil {
			return
		}
		again, err := parseAddress(formatAddress(all, "tcp"), nil)
		if err != nil || formatAddress(again, "tcp") != formatAddress(all, "tcp") {
			t.Fatalf("%q became %v, then %v, %v", text, all, again, err)
		}
	})
}

// named gives a domain another name.
type named struct {
	fabric.Domain
	name string
}

func (d *named) Caps() fabric.Caps {
	caps := d.Domain.Caps()
	caps.Provider = d.name
	caps.SameHost = d.name == "shm"
	return caps
}

// steps are a client and a server on two simulated providers, of which the first is better.
type steps struct {
	fast, slow     *sim.Net
	client, server *Node
	log            *bytes.Buffer
}

func newSteps(t testing.TB, tweak func(client, server *Options)) *steps {
	s := &steps{log: &bytes.Buffer{}}
	s.fast = sim.New(sim.Options{RegionsOnly: true})
	s.slow = sim.New(sim.Options{})
	open := func() (fast, slow fabric.Domain) {
		return &named{s.fast.Open(), "shm"}, &named{s.slow.Open(), "tcp"}
	}
	var all [2]Options
	for i := range all {
		fast, slow := open()
		all[i] = Options{Domains: []fabric.Domain{fast}, Domain: slow}
		t.Cleanup(func() { _, _ = fast.Close(), slow.Close() })
	}
	all[0].Logger = slog.New(slog.NewTextHandler(s.log, nil))
	if tweak != nil {
		tweak(&all[0], &all[1])
	}
	var nodes [2]*Node
	for i := range nodes {
		n, err := NewNode(all[i])
		if err != nil {
			t.Fatal(err)
		}
		nodes[i] = n
		t.Cleanup(func() { _ = n.Close() })
	}
	s.client, s.server = nodes[0], nodes[1]
	return s
}

func (s *steps) serve(t testing.TB, addr string) *Server {
	t.Helper()
	srv, err := s.server.Serve(addr, mirror(), ServeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return srv
}

// dialAndUse connects, moves data in every way, and returns the connection.
func (s *steps) dialAndUse(t testing.TB, addr string) *Conn {
	t.Helper()
	c, err := s.client.Dial(context.Background(), addr)
	if err != nil {
		t.Fatal(err)
	}
	a, err := mem.NewArena(1<<19, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.client.Attach(a); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.client.Detach(a)
		_ = a.Close()
	})
	for i, n := range []int{100, 30000, 30000, 30000, 200_000} {
		out := fabric.Sge{Buf: a.Bytes()[:n]}
		in := fabric.Sge{Buf: a.Bytes()[1<<18:][:n]}
		err := call(c, 20*time.Second, &Request{Out: contig(out), In: contig(in)})
		if err != nil {
			t.Fatalf("%d: %d bytes over %s: %v", i, n, c.Provider(), err)
		}
	}
	return c
}

func provided(c *Conn) string {
	var list []string
	for _, s := range c.Ladder() {
		list = append(list, fmt.Sprintf("%s:%v", s.Provider, errs.KindOf(s.Err)))
	}
	return strings.Join(list, " ")
}

func TestLadderTakesTheBestStepThatWorks(t *testing.T) {
	s := newSteps(t, nil)
	srv := s.serve(t, "tcp:base,shm:unix:/x")
	if srv.Addr() != "tcp:base,shm:/x" {
		t.Fatalf("address %q", srv.Addr())
	}
	for _, addr := range []string{"base", "tcp:base", srv.Addr(), "shm:/x"} {
		c := s.dialAndUse(t, addr)
		if c.Provider() != "shm" || provided(c) != "shm:no error" && provided(c) != "shm:OK" &&
			len(c.Ladder()) != 1 {
			t.Errorf("%s: %s", addr, provided(c))
		}
	}
	if got := s.client.Stats().Ladder[LadderCount{"shm", errs.OK}]; got != 4 {
		t.Errorf("counted %d: %v", got, s.client.Stats().Ladder)
	}
	await(t, func() bool { return srv.Stats().Conns == 4 }) // those of the last step are closed
}

func TestLadderSaysWhyNot(t *testing.T) {
	s := newSteps(t, func(client, _ *Options) {
		client.Missing = []Step{{Provider: "verbs", Err: errs.New(errs.Unsupported, "open", "", nil)}}
	})
	s.serve(t, "tcp:only")
	s.serve(t, "tcp:far,shm:unix:/far")
	other := newSteps(t, nil)
	other.fast = s.fast
	for i, row := range []struct {
		addr  string
		setup func()
		want  errs.Kind
	}{
		{"only", func() {}, errs.NotFound},
		{"far", func() { s.client.host[0] ^= 1 }, errs.CrossDevice},
		{"far", func() { s.client.host[0] ^= 1; s.server.instance++ }, errs.OK},
	} {
		row.setup()
		c := s.dialAndUse(t, row.addr)
		list := c.Ladder()
		if list[0].Provider != "verbs" || errs.KindOf(list[1].Err) != row.want {
			t.Errorf("%d: %s", i, provided(c))
		}
		if want := map[bool]string{true: "shm", false: "tcp"}[row.want == errs.OK]; c.Provider() != want {
			t.Errorf("%d: over %s", i, c.Provider())
		}
	}
	for range 3 {
		s.dialAndUse(t, "only")
	}
	if n := strings.Count(s.log.String(), "provider=shm at=\"\""); n != 1 {
		t.Errorf("said %d times:\n%s", n, s.log.String())
	}
}

// TestLadderDoesNotTrustAName: another server at the place that was offered is not taken.
func TestLadderDoesNotTrustAName(t *testing.T) {
	s := newSteps(t, nil)
	srv := s.serve(t, "tcp:a,shm:unix:/taken")
	_ = srv.doors[1].listener.Close()
	fast, slow := &named{s.fast.Open(), "shm"}, &named{s.slow.Open(), "tcp"}
	thief, err := NewNode(Options{Domains: []fabric.Domain{fast}, Domain: slow})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = thief.Close()
		_, _ = fast.Close(), slow.Close()
	}()
	if _, err := thief.Serve("shm:/taken", answerer(), ServeOptions{}); err != nil {
		t.Fatal(err)
	}
	c := s.dialAndUse(t, "a")
	if c.Provider() != "tcp" || errs.KindOf(c.Ladder()[0].Err) != errs.Conflict {
		t.Fatalf("over %s: %v", c.Provider(), c.Ladder())
	}
	// It is not tried again at once, but the reason stays.
	if c = s.dialAndUse(t, "a"); errs.KindOf(c.Ladder()[0].Err) != errs.Conflict {
		t.Fatalf("%v", c.Ladder())
	}
}

func TestLadderNeedsMemoryOfTheDomain(t *testing.T) {
	s := newSteps(t, nil)
	s.serve(t, "tcp:base,shm:unix:/x")
	c := s.dialAndUse(t, "base")
	req := Request{Out: &Memory{Windows: []fabric.Sge{{Buf: make([]byte, 1<<17)}}}}
	req.Out.Access = contig(req.Out.Windows[0]).Access
	if err := call(c, 20*time.Second, &req); errs.KindOf(err) != errs.Invalid {
		t.Fatalf("memory that nobody registered: %v", err)
	}
	if _, err := s.server.Serve("verbs:1.2.3.4:5", answerer(), ServeOptions{}); !errors.Is(err,
		errs.Unsupported) {
		t.Fatalf("listening without the provider: %v", err)
	}
	if _, err := s.client.Dial(t.Context(), "verbs:1.2.3.4:5"); !errors.Is(err, errs.Invalid) {
		t.Fatalf("dialling without the provider: %v", err)
	}
}

// TestLadderTokens: a step that asks for tokens is taken by peers that are known, and by no others.
func TestLadderTokens(t *testing.T) {
	tokens := fabric.NewTokens(10)
	s := newSteps(t, func(_, server *Options) { server.Tokens = tokens })
	srv := s.serve(t, "tcp:base,shm:unix:/x")
	c := s.dialAndUse(t, "base")
	if c.Provider() != "tcp" || errs.KindOf(c.Ladder()[0].Err) != errs.Perm {
		t.Fatalf("an unknown peer: %s", provided(c))
	}
	flags, token := srv.tokenFor(tokens, fabric.Peer{Proof: fabric.ProofTLS, Name: "host-7"})
	peer, _, err := tokens.Admit(fabric.Hello{Token: token})
	if flags != offerToken || err != nil || peer.Name != "host-7" {
		t.Fatalf("flags %d, %+v, %v", flags, peer, err)
	}
}

// onHost makes a node on shared memory and tcp as they are.
func onHost(t *testing.T, sec *tcp.Security, tokens *fabric.Tokens) *Node {
	t.Helper()
	return onHostBy(t, tcp.Options{Security: sec}, tokens)
}

func onHostBy(t *testing.T, base tcp.Options, tokens *fabric.Tokens) *Node {
	t.Helper()
	arenas := shm.NewArenas()
	fast, err := shm.Open(shm.Options{Arenas: arenas, Tokens: tokens})
	if err != nil {
		t.Fatal(err)
	}
	slow, err := tcp.Open(base)
	if err != nil {
		t.Fatal(err)
	}
	n, err := NewNode(Options{
		Domains: []fabric.Domain{fast}, Domain: slow, Source: arenas, Tokens: tokens,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _, _ = n.Close(), fast.Close(), slow.Close() })
	return n
}

func TestLadderOnThisHost(t *testing.T) {
	s := &steps{server: onHost(t, nil, nil), client: onHost(t, nil, nil)}
	srv := s.serve(t, "tcp:127.0.0.1:0,shm:"+filepath.Join(t.TempDir(), "sock"))
	c := s.dialAndUse(t, srv.Addr())
	if c.Provider() != "shm" {
		t.Fatalf("%v", c.Ladder())
	}
	tcpOnly := strings.TrimPrefix(strings.Split(srv.Addr(), ",")[0], "tcp:")
	if c = s.dialAndUse(t, tcpOnly); c.Provider() != "shm" {
		t.Fatalf("by its tcp address alone: %v", c.Ladder())
	}
	_ = srv.doors[1].listener.Close()
	if c = s.dialAndUse(t, tcpOnly); c.Provider() != "tcp" {
		t.Fatalf("without its socket: %v", c.Ladder())
	}
}

// TestLadderIsBoundToWhoIsKnown: tokens that were issued under TLS open shared memory, and the peer
// is the same there.
func TestLadderIsBoundToWhoIsKnown(t *testing.T) {
	sec := selfSigned(t, "host-7")
	tokens := fabric.NewTokens(10)
	server, client := onHost(t, sec, tokens), onHost(t, sec, nil)
	var seen fabric.Peer
	srv, err := server.Serve("tcp:127.0.0.1:0,shm:"+filepath.Join(t.TempDir(), "sock"),
		HandlerFunc(func(_ context.Context, c *Call) {
			seen = c.Peer()
			_ = c.Reply(nil, 0)
		}), ServeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(t.Context(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if err := call(c, 20*time.Second, &Request{}); err != nil {
		t.Fatal(err)
	}
	if c.Provider() != "shm" || seen.Proof != fabric.ProofToken || seen.Name != "host-7" {
		t.Fatalf("%v; the server sees %v %q", c.Ladder(), seen.Proof, seen.Name)
	}
	shmOnly := strings.Split(srv.Addr(), ",")[1]
	if _, err := client.Dial(t.Context(), shmOnly); errs.KindOf(err) != errs.Perm {
		t.Fatalf("without a token: %v", err)
	}
}

// selfSigned is an authority and its only certificate in one.
func selfSigned(t *testing.T, name string) *tcp.Security {
	t.Helper()
	sec, err := makeKeys(t, name).security(name)
	if err != nil {
		t.Fatal(err)
	}
	return sec
}

// keys are a certificate and its private key, as DER.
type keys struct{ Cert, Key []byte }

func makeKeys(t *testing.T, name string) keys {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		DNSNames: []string{name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{
			x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth,
		},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return keys{Cert: der, Key: private}
}

func (k keys) security(name string) (*tcp.Security, error) {
	key, err := x509.ParseECPrivateKey(k.Key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(k.Cert)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return &tcp.Security{
		Roots: roots, ServerName: name,
		Certificate: func() (*tls.Certificate, error) {
			return &tls.Certificate{Certificate: [][]byte{k.Cert}, PrivateKey: key}, nil
		},
	}, nil
}

func FuzzDecodeOffers(f *testing.F) {
	n := &Node{host: [32]byte{1}}
	var e wire.Enc
	e.U64(5)
	e.Raw(n.host[:])
	e.U8(1)
	e.U8(offerToken)
	e.U8(3)
	e.Raw([]byte("shm"))
	e.U16(6)
	e.Raw([]byte("unix:x"))
	e.Raw(make([]byte, 32))
	f.Add(e.B)
	f.Add(e.B[:50])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		o, err := decodeOffers(body)
		if err != nil {
			return
		}
		if len(o.list) > maxPlaces {
			t.Fatalf("%d offers", len(o.list))
		}
		for _, x := range o.list {
			if x.provider == "" || x.at == "" || len(x.at) > maxAddress {
				t.Fatalf("%+v", x)
			}
		}
	})
}
