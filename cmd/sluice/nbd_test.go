package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// nbdProcess is a running sluice nbd.
type nbdProcess struct {
	t    *testing.T
	cmd  *exec.Cmd
	said *lockedBuffer
	done chan error
}

// lockedBuffer is what a process prints, to be looked at meanwhile.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// startNBD starts one; it ends with the test.
func startNBD(t *testing.T, bin string, args ...string) *nbdProcess {
	t.Helper()
	p := &nbdProcess{t: t, said: &lockedBuffer{}, done: make(chan error, 1),
		cmd: exec.Command(filepath.Join(bin, "sluice"), append([]string{"nbd"}, args...)...)}
	p.cmd.Stdout, p.cmd.Stderr = p.said, p.said
	p.cmd.Dir = t.TempDir()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.done <- p.cmd.Wait() }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		p.ended()
	})
	return p
}

// says waits for what it prints, and returns what the parentheses in the pattern match.
func (p *nbdProcess) says(pattern string) string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	var found []string
	err := eventually(pattern, func() bool {
		found = re.FindStringSubmatch(p.said.String())
		return found != nil
	})
	if err != nil {
		p.t.Fatalf("%v; it says:\n%s", err, p.said)
	}
	return found[len(found)-1]
}

// ended waits for its end.
func (p *nbdProcess) ended() error {
	select {
	case err := <-p.done:
		p.done <- err
		return err
	case <-time.After(time.Minute):
		_ = p.cmd.Process.Kill()
		p.t.Errorf("sluice nbd does not end; it says:\n%s", p.said)
		return <-p.done
	}
}

func (p *nbdProcess) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// runTool runs a program that we did not write.
func runTool(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		if os.Getenv("SLUICE_SKIP_CLIENTS") != "" {
			t.Skipf("%s is not installed and SLUICE_SKIP_CLIENTS is set", name)
		}
		t.Fatalf("%s is not installed: run make deps, or set SLUICE_SKIP_CLIENTS=1", name)
	}
	cmd := exec.Command("timeout", append([]string{"60", name}, args...)...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.WaitDelay = time.Minute // a server that it leaves behind must not hold us
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, &out, &errOut)
	}
	return out.String(), err
}

func mustRun(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := runTool(t, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// plainClient is a client in transmission with simple replies.
type plainClient struct {
	nc net.Conn
}

func sayHear(nc net.Conn, say []byte, hear int) ([]byte, error) {
	if _, err := nc.Write(say); err != nil {
		return nil, err
	}
	p := make([]byte, hear)
	_, err := io.ReadFull(nc, p)
	return p, err
}

func nbdOption(opt uint32, data []byte) []byte {
	p := append([]byte("IHAVEOPT"), 0, 0, 0, byte(opt))
	return append(binary.BigEndian.AppendUint32(p, uint32(len(data))), data...)
}

// attachPlain negotiates an export; upgrade, if not nil, starts TLS.
func attachPlain(nc net.Conn, export string, upgrade *tls.Config) (*plainClient, error) {
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	if _, err := sayHear(nc, nil, 18); err != nil {
		return nil, err
	}
	if _, err := nc.Write([]byte{0, 0, 0, 3}); err != nil {
		return nil, err
	}
	if upgrade != nil {
		p, err := sayHear(nc, nbdOption(5, nil), 20)
		if err != nil || p[15] != 1 {
			return nil, fmt.Errorf("STARTTLS: %x, %w", p, err)
		}
		nc = tls.Client(nc, upgrade)
	}
	data := binary.BigEndian.AppendUint32(nil, uint32(len(export)))
	data = append(append(data, export...), 0, 0)
	if _, err := nc.Write(nbdOption(7, data)); err != nil {
		return nil, err
	}
	for {
		h, err := sayHear(nc, nil, 20)
		if err != nil {
			return nil, err
		}
		kind := binary.BigEndian.Uint32(h[12:])
		text, err := sayHear(nc, nil, int(binary.BigEndian.Uint32(h[16:])))
		switch {
		case err != nil:
			return nil, err
		case kind == 1:
			return &plainClient{nc}, nil
		case kind > 1<<31:
			return nil, fmt.Errorf("refused with %d: %s", kind-1<<31, text)
		}
	}
}

// read reads 512 bytes; an errno other than 0 is an error.
func (c *plainClient) read(off uint64) error {
	p := append([]byte{0x25, 0x60, 0x95, 0x13}, make([]byte, 12)...)
	p = binary.BigEndian.AppendUint64(p, off)
	p = binary.BigEndian.AppendUint32(p, 512)
	h, err := sayHear(c.nc, p, 16)
	if err != nil {
		return err
	}
	if errno := binary.BigEndian.Uint32(h[4:]); errno != 0 {
		return syscall.Errno(errno)
	}
	_, err = sayHear(c.nc, nil, 512)
	return err
}

// pemAuthority writes certificates as files, the way that GnuTLS's clients look for them.
type pemAuthority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newPEMAuthority(t *testing.T) *pemAuthority {
	a := &pemAuthority{t: t}
	_, der, key := a.make("authority")
	a.key = key
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *pemAuthority) make(name string) (cert tls.Certificate, der []byte, key *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), BasicConstraintsValid: true, IsCA: a.cert == nil,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	parent, signer := tmpl, key
	if a.cert != nil {
		parent, signer = a.cert, a.key
	} else {
		tmpl.KeyUsage, tmpl.ExtKeyUsage = x509.KeyUsageCertSign|x509.KeyUsageCRLSign, nil
	}
	der, err = x509.CreateCertificate(rand.Reader, tmpl, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, der, key
}

// folder writes ca-cert.pem, KIND-cert.pem and KIND-key.pem.
func (a *pemAuthority) folder(kind, name string) string {
	a.t.Helper()
	dir := a.t.TempDir()
	_, der, key := a.make(name)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		"ca-cert.pem":      {Type: "CERTIFICATE", Bytes: a.cert.Raw},
		kind + "-cert.pem": {Type: "CERTIFICATE", Bytes: der},
		kind + "-key.pem":  {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return dir
}

func (a *pemAuthority) flags() []string {
	dir := a.folder("server", "server")
	return []string{"--tls-cert", dir + "/server-cert.pem", "--tls-key", dir + "/server-key.pem",
		"--tls-ca", dir + "/ca-cert.pem"}
}

// noise makes a file with holes.
func noise(t *testing.T, bytes int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "noise")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.CopyN(f, rand.Reader, bytes/3); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(bytes); err != nil {
		t.Fatal(err)
	}
	return path
}

func sameContent(t *testing.T, a, b string) {
	t.Helper()
	x, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.ReadFile(b)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(x, y) {
		t.Errorf("%s and %s differ", a, b)
	}
}

// TestNBDOverTLS: clients that nobody here wrote, with files of keys.
func TestNBDOverTLS(t *testing.T) {
	bin, a := linkSelf(t), newPEMAuthority(t)
	image := noise(t, 12<<20)
	p := startNBD(t, bin, append(a.flags(), "--listen", "127.0.0.1:0",
		"--export", "name=m,mem=12M", "--export", "name=alices,mem=12M,allow=alice:carol")...)
	addr := p.says(`serving nbds://(\S+)/m\n`)
	alice, bob := a.folder("client", "alice"), a.folder("client", "bob")
	uri := func(export, keys string) string {
		return "nbds://" + addr + "/" + export + "?tls-certificates=" + keys
	}
	if out := mustRun(t, "nbdinfo", "--json", uri("m", bob)); !strings.Contains(out, `"TLS": true`) {
		t.Errorf("%s", out)
	}
	back := filepath.Join(t.TempDir(), "back")
	mustRun(t, "nbdcopy", "--flush", image, uri("alices", alice))
	mustRun(t, "nbdcopy", uri("alices", alice), back)
	sameContent(t, image, back)
	mustRun(t, "nbdcopy", uri("alices", alice), uri("m", bob))
	list := mustRun(t, "nbdinfo", "--list", uri("", bob))
	if strings.Contains(list, "alices") || !strings.Contains(list, `"m"`) {
		t.Errorf("bob sees %s", list)
	}
	if out, err := runTool(t, "nbdinfo", uri("alices", bob)); err == nil ||
		!strings.Contains(err.Error(), "nbd_opt_go") {
		t.Errorf("bob gets in: %s, %v", out, err)
	}
	if out, err := runTool(t, "nbdinfo", "nbd://"+addr+"/m"); err == nil {
		t.Errorf("without TLS: %s", out)
	}
	stranger := newPEMAuthority(t).folder("client", "alice")
	if out, err := runTool(t, "nbdinfo", uri("m", stranger)); err == nil {
		t.Errorf("with a certificate of somebody else: %s", out)
	}
	host, port, _ := net.SplitHostPort(addr)
	qemu := func(keys string, commands ...string) (string, error) {
		args := []string{"--object", "tls-creds-x509,id=tls0,endpoint=client,dir=" + keys}
		for _, c := range commands {
			args = append(args, "-c", c)
		}
		return runTool(t, "qemu-io", append(args, "--image-opts", fmt.Sprintf("driver=nbd,"+
			"server.type=inet,server.host=%s,server.port=%s,export=m,tls-creds=tls0", host, port))...)
	}
	out, err := qemu(bob, "write -P 5 1M 3M", "flush", "read -P 5 1M 3M", "write -z 2M 64k",
		"read -P 0 2M 64k", "discard 3M 64k", "aio_write -P 6 4M 1M", "aio_flush", "read -P 6 4M 1M")
	if err != nil || strings.Contains(strings.ToLower(out), "failed") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestNBDSelectiveTLS, and what is refused before anything is served.
func TestNBDSelectiveTLS(t *testing.T) {
	bin, a := linkSelf(t), newPEMAuthority(t)
	p := startNBD(t, bin, append(a.flags(), "--listen", "127.0.0.1:0", "--tls", "selective",
		"--export", "name=open,mem=1M", "--export", "name=shut,mem=2M,tls")...)
	addr := p.says(`serving nbds://(\S+)/open\n`)
	if got := mustRun(t, "nbdinfo", "--size", "nbd://"+addr+"/open"); got != "1048576\n" {
		t.Errorf("in the clear: %s", got)
	}
	if out, err := runTool(t, "nbdinfo", "--size", "nbd://"+addr+"/shut"); err == nil {
		t.Errorf("in the clear: %s", out)
	}
	uri := "nbds://" + addr + "/shut?tls-certificates=" + a.folder("client", "x")
	if got := mustRun(t, "nbdinfo", "--size", uri); got != "2097152\n" {
		t.Errorf("through TLS: %s", got)
	}
}

func TestNBDRefuses(t *testing.T) {
	bin, a := linkSelf(t), newPEMAuthority(t)
	keys := a.flags()
	for want, args := range map[string][]string{
		"nothing asks them who they are": {"--listen", "0.0.0.0:0"},
		"who they are, or":               append([]string{"--listen", "0.0.0.0:0"}, keys[:4]...),
		"--tls off":                      append([]string{"--tls", "off"}, keys...),
		"belong together":                {"--tls-cert", keys[1]},
		"without a certificate":          {"--tls", "required"},
		"exclude each other":             {"--stdio", "--run", "true"},
		"no such file":                   {"--tls-cert", "/none", "--tls-key", "/none"},
		"needs TLS":                      {"--export", "name=b,mem=1M,allow=x", "--listen", "unix:s"},
		"there is no filter":             {"--export", "name=b,mem=1M,filter=x"},
		"--stdio is for programs":        {"--stdio"},
	} {
		if want == "who they are, or" {
			want = "nothing asks them who they are" // a server's own keys prove nobody else
		}
		cmd := exec.Command(filepath.Join(bin, "sluice"),
			append([]string{"nbd", "--export", "name=a,mem=1M"}, args...)...)
		cmd.Dir = t.TempDir()
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: %v: %s\nwant %q", args, err, out, want)
		}
	}
	p := startNBD(t, bin, append(keys, "--listen", "0.0.0.0:0", "--export", "name=a,mem=1M")...)
	p.says("serving nbds://")
	p = startNBD(t, bin, "--listen", "0.0.0.0:0", "--insecure", "--export", "name=a,mem=1M")
	p.says("serving nbd://")
}
