package tcp

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"net"
	"net/netip"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
	"github.com/sluice-storage/sluice/wire"
)

// Before the hellos, where a Secret is wanted, each side proves that it knows it. The dialler
// begins with 64 bytes, as many as a hello has, so that a listener reads the one or the other:
//
//	0      4        6     32     64
//	|magic |version |zero |nonce |
//
//	the listener answers:
//	0      4        6      7     8      40     72      74
//	|magic |version |flags |zero |nonce |proof |length |file |    flags: 1 proof, 2 optional
//
//	and the dialler, with its hello behind it:
//	0      32
//	|proof |
//
// A proof is the HMAC-SHA-256, by the secret, of the role of who makes it, both addresses, the call
// and the answer. The listener proves first, which costs it a microsecond and keeps nothing: a
// dialler says nothing to somebody who has only taken the port. Roles keep a proof from being sent
// back to its maker, nonces from being used again, and addresses from being passed on: a process in
// the middle has other ports than the two ends.
//
// A listener that has no Secret answers without a proof. A dialler that has none begins with its
// hello, which a listener with one refuses, unless it is optional.

const (
	proveMagic      = 0x534c4350 // "SLCP"
	proveVersion    = 1
	proofBytes      = sha256.Size
	answerHeadBytes = 74
	secretPathMax   = 1024

	answerProof    = 1
	answerOptional = 2
)

// secretHolder is the name of a peer that has proved that it knows the secret.
const secretHolder = "holder of the cluster's secret"

type nonce [32]byte

func newNonce() (n nonce) {
	_, _ = rand.Read(n[:]) // never fails
	return n
}

// answer is what a listener says to a call.
type answer struct {
	flags uint8
	nonce nonce
	proof [proofBytes]byte
	file  string // where the secret is
}

func encodeCall(n nonce) (b [helloBytes]byte) {
	binary.BigEndian.PutUint32(b[0:], proveMagic)
	binary.BigEndian.PutUint16(b[4:], proveVersion)
	copy(b[32:], n[:])
	return b
}

func isCall(b *[helloBytes]byte) bool { return binary.BigEndian.Uint32(b[0:]) == proveMagic }

func decodeCall(b *[helloBytes]byte) (n nonce, err error) {
	if err := checkProveVersion(b[:]); err != nil {
		return n, err
	}
	if [26]byte(b[6:32]) != [26]byte{} {
		return n, protocolErr("reserved bytes of a call are not zero")
	}
	return nonce(b[32:]), nil
}

func checkProveVersion(b []byte) error {
	if v := binary.BigEndian.Uint16(b[4:]); v != proveVersion {
		return errs.Newf(errs.Version, "tcp", "proof", "the peer proves by version %d, this side by %d: "+
			"%s", v, proveVersion, wire.Remedy(int64(v), proveVersion))
	}
	return nil
}

func (a *answer) encode() []byte {
	b := make([]byte, answerHeadBytes, answerHeadBytes+len(a.file))
	binary.BigEndian.PutUint32(b[0:], proveMagic)
	binary.BigEndian.PutUint16(b[4:], proveVersion)
	b[6] = a.flags
	copy(b[8:], a.nonce[:])
	copy(b[40:], a.proof[:])
	binary.BigEndian.PutUint16(b[72:], uint16(len(a.file)))
	return append(b, a.file...)
}

// decodeAnswer reads the head of an answer; the file's name, of that length, follows it.
func decodeAnswer(b *[answerHeadBytes]byte) (a answer, length int, err error) {
	if binary.BigEndian.Uint32(b[0:]) != proveMagic {
		return a, 0, errs.Newf(errs.Protocol, "tcp", "proof", "the peer does not speak this protocol")
	}
	if err := checkProveVersion(b[:]); err != nil {
		return a, 0, err
	}
	a.flags = b[6]
	length = int(binary.BigEndian.Uint16(b[72:]))
	if a.flags > answerProof|answerOptional || b[7] != 0 || length > secretPathMax {
		return a, 0, protocolErr("an answer that makes no sense")
	}
	a.nonce = nonce(b[8:])
	copy(a.proof[:], b[40:])
	return a, length, nil
}

// proofBy is the proof of one side. dialler and listener are the addresses as that side sees them.
func (s *secret) proofBy(role string, dialler, listener net.Addr, call nonce, a answer) (
	p [proofBytes]byte,
) {
	a.proof = [proofBytes]byte{}
	m := hmac.New(sha256.New, s.key[:])
	for _, part := range []string{role, plainAddr(dialler), plainAddr(listener)} {
		m.Write(binary.BigEndian.AppendUint16(nil, uint16(len(part))))
		m.Write([]byte(part))
	}
	m.Write(call[:])
	m.Write(a.encode())
	m.Sum(p[:0])
	return p
}

const (
	listenerRole = "sluice listener 1"
	diallerRole  = "sluice dialler 1"
)

// plainAddr is an address as both sides write it, whatever kinds of sockets they have.
func plainAddr(a net.Addr) string {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return a.String()
	}
	ap := t.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port()).String()
}

// proveTo is the dialler's side.
func (d *domain) proveTo(ctx context.Context, g *greeting) error {
	call := newNonce()
	b := encodeCall(call)
	if _, err := g.conn.Write(b[:]); err != nil {
		return errs.New(errs.Disconnected, "tcp", "proof", err)
	}
	a, err := readAnswer(ctx, g)
	if err != nil {
		return err
	}
	if a.flags&answerProof == 0 {
		if d.opts.Secret.Optional && d.secret == nil {
			return nil
		}
		return errs.Newf(errs.Perm, "tcp", "proof",
			"the listener does not prove that it is of a cluster of yours")
	}
	key, err := d.secretFor(&a)
	if err != nil {
		if a.flags&answerOptional != 0 && d.opts.Secret.Optional {
			var none [proofBytes]byte // which no secret gives
			_, err = g.conn.Write(none[:])
		}
		return err
	}
	dialler, listener := g.tcp.LocalAddr(), g.tcp.RemoteAddr()
	want := key.proofBy(listenerRole, dialler, listener, call, a)
	if !hmac.Equal(want[:], a.proof[:]) {
		return errs.Newf(errs.Perm, "tcp", "proof",
			"the listener has another secret than that of this side, which is that of %s",
			key.file)
	}
	mine := key.proofBy(diallerRole, dialler, listener, call, a)
	if _, err := g.conn.Write(mine[:]); err != nil {
		return errs.New(errs.Disconnected, "tcp", "proof", err)
	}
	g.who, g.name = fabric.ProofSecret, secretHolder
	return nil
}

// secretFor is the secret of a dialler: its own, or that of the file which the listener names.
func (d *domain) secretFor(a *answer) (*secret, error) {
	if d.secret != nil {
		return d.secret, nil
	}
	return readNamed(a.file)
}

// readAnswer waits for the listener's answer. A hello in its place is a refusal.
func readAnswer(ctx context.Context, g *greeting) (answer, error) {
	var head [answerHeadBytes]byte
	first := (*[helloBytes]byte)(head[:])
	if err := g.read(ctx, first[:]); err != nil {
		return answer{}, err
	}
	if !isCall(first) {
		h, err := decodeHello(first)
		if err == nil {
			err = errs.Newf(fabric.RefusalKind(h.refusal), "tcp", "proof", "refused by the listener")
		}
		return answer{}, err
	}
	if err := g.read(ctx, head[helloBytes:]); err != nil {
		return answer{}, err
	}
	a, length, err := decodeAnswer(&head)
	if err != nil {
		return a, err
	}
	file := make([]byte, length)
	err = g.read(ctx, file)
	a.file = string(file)
	return a, err
}

// proveOf is the listener's side. What comes first may be a hello; then it is kept for readHello.
func (d *domain) proveOf(ctx context.Context, g *greeting) error {
	s := d.opts.Secret
	g.asked = s != nil && !s.Optional
	var first [helloBytes]byte
	if err := g.read(ctx, first[:]); err != nil {
		return err
	}
	if !isCall(&first) {
		g.first = &first
		if g.asked {
			return errs.Newf(errs.Perm, "tcp", "proof",
				"the peer does not prove that it knows the cluster's secret")
		}
		return nil
	}
	call, err := decodeCall(&first)
	if err != nil {
		return err
	}
	var a answer
	if s != nil {
		a = d.answerTo(g, call)
	}
	if _, err := g.conn.Write(a.encode()); err != nil || s == nil {
		return err
	}
	var proof [proofBytes]byte
	if err := g.read(ctx, proof[:]); err != nil {
		return err
	}
	if s.Optional && proof == [proofBytes]byte{} {
		return nil
	}
	want := d.secret.proofBy(diallerRole, g.tcp.RemoteAddr(), g.tcp.LocalAddr(), call, a)
	if !hmac.Equal(want[:], proof[:]) {
		return errs.Newf(errs.Perm, "tcp", "proof", "the peer does not know the cluster's secret")
	}
	g.who, g.name = fabric.ProofSecret, secretHolder
	return nil
}

// answerTo is the answer of a listener that has a secret.
func (d *domain) answerTo(g *greeting, call nonce) answer {
	a := answer{flags: answerProof, nonce: newNonce(), file: d.secret.file}
	if d.opts.Secret.Optional {
		a.flags |= answerOptional
	}
	a.proof = d.secret.proofBy(listenerRole, g.tcp.RemoteAddr(), g.tcp.LocalAddr(), call, a)
	return a
}

// read fills b with what the peer sends before ctx ends.
func (g *greeting) read(ctx context.Context, b []byte) error {
	n := 0
	err := provider.Until(ctx, g.tcp, func() (err error) {
		n, err = io.ReadFull(g.conn, b)
		return err
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case g.tls != nil:
		return explain(err)
	case n >= 2 && b[0] == 21 && b[1] == 3: // a TLS alert
		return errs.Newf(errs.Perm, "tcp", "hello", "the listener wants TLS")
	}
	return errs.New(errs.Disconnected, "tcp", "hello", err)
}
