package peer

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
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/wire"
)

func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1:9400":           "127.0.0.1:9400",
		"tcp:127.0.0.1:9400":       "127.0.0.1:9400",
		"tcp:[::1]:1,shm:/run/x":   "tcp:[::1]:1,shm:/run/x",
		"unix:/run/x,host:1":       "shm:/run/x,tcp:host:1",
		"verbs:10.0.0.1:9,shm:@a":  "verbs:10.0.0.1:9,shm:@a",
		"server":                   "server",
		"tcp:":                     "",
		"":                         "",
		"a:1,,b:2":                 "",
		"a:1,b:2":                  "tcp:a:1,tcp:b:2",
		"a:1,tcp:a:1":              "",
		"shm:/a,unix:/a":           "",
		strings.Repeat("a:1,", 17): "",
		strings.Repeat("x", 2000):  "",
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
		"10.0.0.1:9,verbs:10.0.0.1:8":   "verbs:10.0.0.1:9,verbs:10.0.0.1:8",
		"verbs:10.0.0.1:9,10.0.0.1:9":   "",
		"shm:/x,10.0.0.1:9,tcp:a:1,b:2": "shm:/x,verbs:10.0.0.1:9,tcp:a:1,verbs:b:2",
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
		k := climb{net: s.client, places: places}
		k.baseAt = k.named(s.client.base())[0]
		got := k.spotsOf(&s.client.steps[0], []*offer{{at: row.offer, token: [32]byte{7}}})
		if len(got) != 1 || got[0].at != row.want || got[0].token[0] != 7 {
			t.Errorf("%s, offered %s: %+v, want %s", row.addr, row.offer, got, row.want)
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

// named gives a domain another name, and can cease to listen.
type named struct {
	fabric.Domain
	name      string
	asks      bool // it says that its listeners ask for tokens
	listeners []fabric.Listener
}

func (d *named) Caps() fabric.Caps {
	caps := d.Domain.Caps()
	caps.Provider = d.name
	caps.SameHost = d.name == SHM
	caps.AsksToken = caps.AsksToken || d.asks
	return caps
}

func (d *named) Connector() fabric.Connector { return noting{d.Domain.Connector(), d} }

// noting is a connector that keeps its listeners in a named domain.
type noting struct {
	fabric.Connector
	d *named
}

func (c noting) Listen(addr string) (fabric.Listener, error) {
	l, err := c.Connector.Listen(addr)
	if err == nil {
		c.d.listeners = append(c.d.listeners, l)
	}
	return l, err
}

// deaf closes all listeners.
func (d *named) deaf() {
	for _, l := range d.listeners {
		_ = l.Close()
	}
}

// steps are a client and a server on two simulated providers, of which the first is better.
type steps struct {
	fast, slow     *sim.Net
	client, server *Network
	near           *named // the server's better provider
	log            *bytes.Buffer
}

func newSteps(t testing.TB, tweak func(client, server *Providers)) *steps {
	s := &steps{log: &bytes.Buffer{}}
	s.fast = sim.New(sim.Options{RegionsOnly: true})
	s.slow = sim.New(sim.Options{})
	var all [2]*Providers
	for i := range all {
		s.near = &named{Domain: s.fast.Open(), name: SHM}
		slow := &named{Domain: s.slow.Open(), name: TCP}
		all[i] = &Providers{Domains: []fabric.Domain{s.near, slow}}
		t.Cleanup(func() { _ = all[i].Close() })
	}
	if tweak != nil {
		tweak(all[0], all[1])
	}
	log := slog.New(slog.NewTextHandler(s.log, nil))
	s.client = newNetwork(t, all[0], msg.Options{Logger: log})
	s.server = newNetwork(t, all[1], msg.Options{})
	return s
}

func newNetwork(t testing.TB, p *Providers, opts msg.Options) *Network {
	t.Helper()
	n, err := New(p, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

func (s *steps) serve(t testing.TB, addr string) *msg.Server {
	t.Helper()
	srv, err := s.server.Serve(addr, mirror(s.server.Node), msg.ServeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return srv
}

// dialAndUse connects, moves data in every way, and returns the connection.
func (s *steps) dialAndUse(t testing.TB, addr string) *msg.Conn {
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
		out, in := a.Bytes()[:n], a.Bytes()[1<<18:][:n]
		for j := range out {
			out[j] = byte(i + j)
		}
		err := call(c, 20*time.Second, &msg.Request{Out: contig(out), In: contig(in)})
		if err == nil && !bytes.Equal(in, out) {
			err = errors.New("other data came back")
		}
		if err != nil {
			t.Fatalf("%d: %d bytes over %s: %v", i, n, c.Provider(), err)
		}
	}
	return c
}

func (s *steps) provided(c *msg.Conn) string {
	var list []string
	for _, s := range s.client.Ladder(c) {
		list = append(list, fmt.Sprintf("%s:%v", s.Provider, errs.KindOf(s.Err)))
	}
	return strings.Join(list, " ")
}

func TestLadderTakesTheBestStepThatWorks(t *testing.T) {
	s := newSteps(t, nil)
	srv := s.serve(t, "tcp:base,shm:unix:/x")
	if s.server.AddrOf(srv) != "tcp:base,shm:/x" {
		t.Fatalf("address %q", s.server.AddrOf(srv))
	}
	for _, addr := range []string{"base", "tcp:base", s.server.AddrOf(srv), "shm:/x"} {
		c := s.dialAndUse(t, addr)
		if c.Provider() != "shm" || s.provided(c) != "shm:no error" && s.provided(c) != "shm:OK" &&
			len(s.client.Ladder(c)) != 1 {
			t.Errorf("%s: %s", addr, s.provided(c))
		}
	}
	if got := s.client.LadderCounts()[LadderCount{SHM, errs.OK}]; got != 4 {
		t.Errorf("counted %d: %v", got, s.client.LadderCounts())
	}
	await(t, func() bool { return srv.Stats().Conns == 4 }) // those of the last step are closed
}

func TestLadderSaysWhyNot(t *testing.T) {
	s := newSteps(t, func(client, _ *Providers) {
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
		list := s.client.Ladder(c)
		if list[0].Provider != "verbs" || errs.KindOf(list[1].Err) != row.want {
			t.Errorf("%d: %s", i, s.provided(c))
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
	s.serve(t, "tcp:a,shm:unix:/taken")
	s.near.deaf()
	own := &Providers{Domains: []fabric.Domain{
		&named{Domain: s.fast.Open(), name: SHM}, &named{Domain: s.slow.Open(), name: TCP},
	}}
	t.Cleanup(func() { _ = own.Close() })
	thief := newNetwork(t, own, msg.Options{})
	if _, err := thief.Serve("shm:/taken", answerer(), msg.ServeOptions{}); err != nil {
		t.Fatal(err)
	}
	c := s.dialAndUse(t, "a")
	if c.Provider() != "tcp" || errs.KindOf(s.client.Ladder(c)[0].Err) != errs.Conflict {
		t.Fatalf("over %s: %v", c.Provider(), s.client.Ladder(c))
	}
	// It is not tried again at once, but the reason stays.
	if c = s.dialAndUse(t, "a"); errs.KindOf(s.client.Ladder(c)[0].Err) != errs.Conflict {
		t.Fatalf("%v", s.client.Ladder(c))
	}
}

func TestLadderNeedsMemoryOfTheDomain(t *testing.T) {
	s := newSteps(t, nil)
	s.serve(t, "tcp:base,shm:unix:/x")
	c := s.dialAndUse(t, "base")
	req := msg.Request{Out: contig(make([]byte, 1<<17))}
	if err := call(c, 20*time.Second, &req); errs.KindOf(err) != errs.Invalid {
		t.Fatalf("memory that nobody registered: %v", err)
	}
	if _, err := s.server.Serve("verbs:1.2.3.4:5", answerer(), msg.ServeOptions{}); !errors.Is(err,
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
	s := newSteps(t, func(_, server *Providers) {
		server.Tokens = tokens
		server.Domains[0].(*named).asks = true
	})
	s.serve(t, "tcp:base,shm:unix:/x")
	c := s.dialAndUse(t, "base")
	if c.Provider() != "tcp" || errs.KindOf(s.client.Ladder(c)[0].Err) != errs.Perm {
		t.Fatalf("an unknown peer: %s", s.provided(c))
	}
	flags, token := s.server.tokenFor(fabric.Peer{Proof: fabric.ProofTLS, Name: "host-7"})
	peer, _, err := tokens.Admit(fabric.Hello{Token: token})
	if flags != offerToken || err != nil || peer.Name != "host-7" {
		t.Fatalf("flags %d, %+v, %v", flags, peer, err)
	}
}

// onHost makes a network on shared memory and tcp as they are.
func onHost(t *testing.T, sec *tcp.Security, tokens *fabric.Tokens) *Network {
	t.Helper()
	return onHostBy(t, tcp.Options{Security: sec}, tokens)
}

func onHostBy(t *testing.T, base tcp.Options, tokens *fabric.Tokens) *Network {
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
	p := &Providers{
		Domains: []fabric.Domain{&named{Domain: fast, name: SHM}, slow}, Tokens: tokens,
	}
	t.Cleanup(func() { _ = p.Close() })
	return newNetwork(t, p, msg.Options{Source: arenas})
}

func TestLadderOnThisHost(t *testing.T) {
	s := &steps{server: onHost(t, nil, nil), client: onHost(t, nil, nil)}
	srv := s.serve(t, "tcp:127.0.0.1:0,shm:"+filepath.Join(t.TempDir(), "sock"))
	c := s.dialAndUse(t, s.server.AddrOf(srv))
	if c.Provider() != "shm" {
		t.Fatalf("%v", s.client.Ladder(c))
	}
	tcpOnly := srv.Addr()
	if c = s.dialAndUse(t, tcpOnly); c.Provider() != "shm" {
		t.Fatalf("by its tcp address alone: %v", s.client.Ladder(c))
	}
	s.server.steps[0].domain.(*named).deaf()
	if c = s.dialAndUse(t, tcpOnly); c.Provider() != "tcp" {
		t.Fatalf("without its socket: %v", s.client.Ladder(c))
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
		msg.HandlerFunc(func(_ context.Context, c *msg.Call) {
			seen = c.Peer()
			_ = c.Reply(nil, 0)
		}), msg.ServeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(t.Context(), server.AddrOf(srv))
	if err != nil {
		t.Fatal(err)
	}
	if err := call(c, 20*time.Second, &msg.Request{}); err != nil {
		t.Fatal(err)
	}
	if c.Provider() != "shm" || seen.Proof != fabric.ProofToken || seen.Name != "host-7" {
		t.Fatalf("%v; the server sees %v %q", client.Ladder(c), seen.Proof, seen.Name)
	}
	shmOnly := strings.Split(server.AddrOf(srv), ",")[1]
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
	host := [32]byte{1}
	var e wire.Enc
	e.U64(5)
	e.Raw(host[:])
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
