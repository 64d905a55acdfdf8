package tcp

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
)

// newSecret makes the file of a secret.
func newSecret(t testing.TB) string {
	t.Helper()
	var key [SecretBytes]byte
	_, _ = rand.Read(key[:])
	file := filepath.Join(t.TempDir(), SecretName)
	fatal(t, os.WriteFile(file, []byte(hex.EncodeToString(key[:])+"\n"), 0o600))
	return file
}

func TestWhoKnowsTheSecret(t *testing.T) {
	right, wrong := newSecret(t), newSecret(t)
	closed := Options{Secret: &Secret{File: right}}
	open := Options{Secret: &Secret{File: right, Optional: true}}
	silent := Options{Log: slog.New(slog.DiscardHandler)}
	for _, test := range []struct {
		name             string
		listener, dialer Options
		kind             errs.Kind
		proof            fabric.Proof
	}{
		{"the same file", closed, Options{Secret: &Secret{File: right}}, errs.OK, fabric.ProofSecret},
		{"the file that is named", closed, Options{Secret: &Secret{}}, errs.OK, fabric.ProofSecret},
		{"another secret", closed, Options{Secret: &Secret{File: wrong}}, errs.Perm, 0},
		{"another secret, trusting", closed, Options{Secret: &Secret{File: wrong, Optional: true}},
			errs.Perm, 0},
		{"no secret", closed, Options{}, errs.Perm, 0},
		{"optional, none", open, Options{}, errs.OK, fabric.ProofNone},
		{"optional, right", open, Options{Secret: &Secret{}}, errs.OK, fabric.ProofSecret},
		{"optional, wrong", open, Options{Secret: &Secret{File: wrong, Optional: true}}, errs.Perm, 0},
		{"a listener without one", silent, Options{Secret: &Secret{File: right}}, errs.Perm, 0},
		{"a listener without one, trusted", silent, Options{Secret: &Secret{Optional: true}}, errs.OK,
			fabric.ProofNone},
		{"TLS", closed, Options{Security: newAuthority(t).security(t, "x")}, errs.Perm, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := newGate(t, test.listener)
			test.dialer.Log = slog.New(slog.DiscardHandler)
			peer, err := g.try(t, test.dialer)
			if errs.KindOf(err) != test.kind {
				t.Fatalf("%v, want %v", err, test.kind)
			}
			if err == nil && (peer.Proof != test.proof || (peer.Name == "") != (test.proof == 0)) {
				t.Fatalf("the dialler knows %v %q", peer.Proof, peer.Name)
			}
		})
	}
}

// TestFilesThatAreNoSecrets: a process that only has the port names files of its own.
func TestFilesThatAreNoSecrets(t *testing.T) {
	right := newSecret(t)
	wide := newSecret(t)
	fatal(t, os.Chmod(wide, 0o640))
	_, err := Open(Options{Secret: &Secret{File: wide}})
	if errs.KindOf(err) != errs.Perm || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a secret that others may read: %v", err)
	}
	_, err = Open(Options{Secret: &Secret{File: right + ".absent"}})
	if errs.KindOf(err) != errs.NotFound {
		t.Errorf("a secret that is not there: %v", err)
	}
	short := filepath.Join(t.TempDir(), SecretName)
	fatal(t, os.WriteFile(short, []byte("abc\n"), 0o600))
	foreign := newSecret(t)
	if os.Getuid() == 0 {
		fatal(t, os.Chown(foreign, 65534, 65534))
	} else {
		foreign = wide
	}
	for _, file := range []string{
		wide, short, foreign, "", "relative/" + SecretName, "/etc/passwd", "/dev/zero",
		filepath.Dir(right) + "/./" + SecretName, right + ".absent",
	} {
		if s, err := readNamed(file); err == nil {
			t.Errorf("%q was taken for a secret: %v", file, s.file)
		}
	}
	fifo := filepath.Join(t.TempDir(), SecretName)
	fatal(t, unix.Mkfifo(fifo, 0o600))
	if _, err := readNamed(fifo); err == nil {
		t.Error("a pipe was taken for a secret")
	}
	if _, err := readNamed(right); err != nil {
		t.Error(err)
	}
}

// TestProofsCannotBePassedOn has somebody listen at another port, who passes everything on to the
// real listener.
func TestProofsCannotBePassedOn(t *testing.T) {
	file := newSecret(t)
	g := newGate(t, Options{Secret: &Secret{File: file}})
	front, err := net.Listen("tcp", "127.0.0.1:0")
	fatal(t, err)
	back := g.addr
	g.addr = front.Addr().String()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer front.Close()
	wg.Go(func() {
		in, err := front.Accept()
		if err != nil {
			return
		}
		defer in.Close()
		out, err := net.Dial("tcp", back)
		if err != nil {
			return
		}
		wg.Go(func() {
			_, _ = io.Copy(out, in)
			_ = out.Close()
		})
		_, _ = io.Copy(in, out)
	})
	_, err = g.try(t, Options{Secret: &Secret{File: file}})
	if errs.KindOf(err) != errs.Perm {
		t.Fatalf("through somebody else: %v", err)
	}
}

// knock is a peer that says what it likes.
type knock struct {
	t    *testing.T
	conn net.Conn
}

func (g *gate) knock(t *testing.T) *knock {
	t.Helper()
	c, err := net.Dial("tcp", g.addr)
	fatal(t, err)
	t.Cleanup(func() { _ = c.Close() })
	fatal(t, c.SetDeadline(time.Now().Add(time.Minute)))
	return &knock{t, c}
}

// answer calls and reads the listener's answer.
func (k *knock) answer(call nonce) answer {
	k.t.Helper()
	b := encodeCall(call)
	_, err := k.conn.Write(b[:])
	fatal(k.t, err)
	var head [answerHeadBytes]byte
	_, err = io.ReadFull(k.conn, head[:])
	fatal(k.t, err)
	a, length, err := decodeAnswer(&head)
	fatal(k.t, err)
	name := make([]byte, length)
	_, err = io.ReadFull(k.conn, name)
	fatal(k.t, err)
	a.file = string(name)
	return a
}

// refused reads the listener's hello, which must be a refusal, and the end.
func (k *knock) refused() {
	k.t.Helper()
	rest, err := io.ReadAll(k.conn)
	fatal(k.t, err)
	if len(rest) != helloBytes || errs.Kind(binary.BigEndian.Uint16(rest[24:])) != errs.Perm {
		k.t.Fatalf("it was told %x", rest)
	}
}

// TestProofsAreGoodOnce tries proofs of other connections, of the other role, and none. Nothing
// that is behind them is looked at.
func TestProofsAreGoodOnce(t *testing.T) {
	file := newSecret(t)
	g := newGate(t, Options{Secret: &Secret{File: file}})
	known, err := readNamed(file)
	fatal(t, err)
	var h hello
	h.Version = fabric.HelloVersion
	greet := h.encode()

	first := g.knock(t)
	call := newNonce()
	a := first.answer(call)
	if a.file != file || a.flags != answerProof {
		t.Fatalf("the answer is %+v", a)
	}
	here, there := first.conn.LocalAddr(), first.conn.RemoteAddr()
	if want := known.proofBy(listenerRole, here, there, call, a); want != a.proof {
		t.Fatal("the listener does not prove that it knows the secret")
	}
	good := known.proofBy(diallerRole, here, there, call, a)
	for name, proof := range map[string][proofBytes]byte{
		"that of another connection": good, "the listener's own": {}, "none": {},
	} {
		k := g.knock(t)
		a := k.answer(call)
		if name == "the listener's own" {
			proof = a.proof
		}
		_, err = k.conn.Write(append(proof[:], greet[:]...))
		fatal(t, err)
		k.refused()
	}
	_, err = first.conn.Write(append(good[:], greet[:]...))
	fatal(t, err)
	var got [helloBytes]byte
	_, err = io.ReadFull(first.conn, got[:])
	fatal(t, err)
	if h, err := decodeHello(&got); err != nil || h.refusal != errs.OK {
		t.Fatalf("the right proof: %+v, %v", h, err)
	}
	if n := g.log.lines("connection refused"); n != 1 {
		t.Errorf("the log tells of it %d times", n)
	}
	if len(g.failed) != 0 {
		t.Errorf("Accept was bothered: %v", <-g.failed)
	}
}

// TestStrangersKeepNobodyOut fills the listener with peers that say nothing, and with others that
// prove nothing, for longer than the test may take.
func TestStrangersKeepNobodyOut(t *testing.T) {
	file := newSecret(t)
	g := newGate(t, Options{Secret: &Secret{File: file}, HelloTimeout: time.Hour})
	var mute []*knock
	for range 5 * provider.Backlog {
		mute = append(mute, g.knock(t))
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(stop)
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c, err := net.Dial("tcp", g.addr)
				if err == nil {
					_, _ = c.Write(bytes.Repeat([]byte("x"), 2*helloBytes))
					_ = c.Close()
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	for range 20 {
		if _, err := g.try(t, Options{Secret: &Secret{File: file}}); err != nil {
			t.Fatal(err)
		}
	}
	for i, k := range mute[:4*provider.Backlog] { // the listener holds no more than backlog
		if _, err := io.ReadAll(k.conn); err != nil {
			t.Fatalf("mute peer %d is still there: %v", i, err)
		}
	}
}

func FuzzProve(f *testing.F) {
	call := encodeCall(nonce{1, 2, 3})
	a := answer{flags: answerProof, nonce: nonce{4}, file: "/a/" + SecretName}
	f.Add(call[:])
	f.Add(a.encode())
	f.Add(append(a.encode(), call[:]...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= helloBytes {
			first := (*[helloBytes]byte)(b)
			n, err := decodeCall(first)
			if again := encodeCall(n); err == nil && isCall(first) && again != *first {
				t.Fatalf("%x is read as %x", first, again)
			}
		}
		if len(b) < answerHeadBytes {
			return
		}
		a, length, err := decodeAnswer((*[answerHeadBytes]byte)(b))
		if err != nil || length > len(b)-answerHeadBytes {
			return
		}
		if length > secretPathMax {
			t.Fatalf("a name of %d bytes", length)
		}
		a.file = string(b[answerHeadBytes:][:length])
		if again := a.encode(); !bytes.Equal(again, b[:answerHeadBytes+length]) {
			t.Fatalf("%x is read as %x", b, again)
		}
	})
}
