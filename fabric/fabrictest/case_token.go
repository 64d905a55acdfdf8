package fabrictest

import (
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

func tokenCases() []testCase {
	return []testCase{
		{"a token says who the peer is", testToken},
		{"tokens that are not good are refused", testBadTokens},
		{"refused tokens do not keep others waiting", testTokensTogether},
		{"a listener that does not know the token is refused", testTokenUnknownHere},
	}
}

// newTokenPair is a pair whose listener asks for tokens.
func newTokenPair(t *testing.T, cfg Config) (*rig, *fabric.Tokens) {
	t.Helper()
	if cfg.OpenTokens == nil {
		t.Skip("the provider knows no tokens")
	}
	tokens := fabric.NewTokens(16)
	a, _ := cfg.Open(t)
	b, addr := cfg.OpenTokens(t, tokens)
	return pairOf(t, cfg, fabric.CQOptions{Depth: 8 * depth}, a, b, addr()), tokens
}

func issue(t *testing.T, tokens *fabric.Tokens, name string) [32]byte {
	t.Helper()
	token, err := tokens.Issue(name, time.Hour)
	check(t, err)
	return token
}

// withToken is a's config with a token to show.
func (r *rig) withToken(token [32]byte) fabric.EndpointConfig {
	a := r.a.config()
	a.Hello.Token, a.Hello.Identity = token, 9
	return a
}

func testToken(t *testing.T, cfg Config) {
	r, tokens := newTokenPair(t, cfg)
	ctx, cancel := cfg.limit()
	defer cancel()
	for _, name := range []string{"left", "right"} {
		done := r.dial(ctx, r.withToken(issue(t, tokens, name)))
		var asked fabric.Peer
		ep, err := r.accept(ctx, func(p fabric.Peer) error {
			asked = p
			return nil
		})
		check(t, err)
		d := <-done
		check(t, d.err)
		for _, p := range []fabric.Peer{asked, ep.Peer()} {
			if p.Proof != fabric.ProofToken || p.Name != name || p.Identity != 9 {
				t.Fatalf("the peer is %+v, want %s by its token", p, name)
			}
		}
		r.a.ep, r.b.ep = d.ep, ep
		r.barrier()
	}
}

func testBadTokens(t *testing.T, cfg Config) {
	r, tokens := newTokenPair(t, cfg)
	used := issue(t, tokens, "once")
	r.connect(r.withToken(used), r.b.config())
	wrong := issue(t, tokens, "almost")
	wrong[31] ^= 1
	old, err := tokens.Issue("late", time.Nanosecond)
	check(t, err)
	time.Sleep(time.Millisecond)
	for name, token := range map[string][32]byte{
		"used": used, "wrong": wrong, "none": {}, "old": old,
	} {
		_, _, errA, errB := r.tryConnect(r.withToken(token), r.b.config())
		if errs.KindOf(errA) != errs.Perm {
			t.Errorf("%s: the dialler got %v", name, errA)
		}
		if errs.KindOf(errB) != errs.Perm {
			t.Errorf("%s: the listener got %v", name, errB)
		}
	}
	wrong[31] ^= 1 // what was refused has not used it up
	r.a.ep, r.b.ep = r.connect(r.withToken(wrong), r.b.config())
	r.barrier()
}

// testTokensTogether has many diallers at once, every second one with a token that is not good.
func testTokensTogether(t *testing.T, cfg Config) {
	r, tokens := newTokenPair(t, cfg)
	ctx, cancel := cfg.limit()
	defer cancel()
	const count = 8
	small := func(s *side) fabric.EndpointConfig {
		c := s.config()
		c.SendDepth, c.RecvDepth = 4, 4
		return c
	}
	var calls [count]<-chan dialled
	for i := range calls {
		a := small(r.a)
		if i%2 == 0 {
			a.Hello.Token = issue(t, tokens, "good")
		} else {
			a.Hello.Token[0] = byte(i)
		}
		calls[i] = r.dial(ctx, a)
	}
	good := 0
	for range count {
		ep, err := r.listen.Accept(ctx, func(fabric.Peer) (fabric.EndpointConfig, error) {
			return small(r.b), nil
		})
		switch {
		case err == nil && ep.Peer().Name == "good":
			good++
		case errs.KindOf(err) != errs.Perm:
			t.Errorf("Accept: %v", err)
		}
	}
	for i, call := range calls {
		want := []errs.Kind{errs.OK, errs.Perm}[i%2]
		if d := <-call; errs.KindOf(d.err) != want {
			t.Errorf("dialler %d: %v, want %v", i, d.err, want)
		}
	}
	if good != count/2 {
		t.Errorf("%d of %d were accepted", good, count/2)
	}
}

// testTokenUnknownHere shows a token to a listener that knows none: the dialler must not talk to
// it. What Accept returned there, an error or an endpoint, is dead.
func testTokenUnknownHere(t *testing.T, cfg Config) {
	if cfg.OpenTokens == nil {
		t.Skip("the provider knows no tokens")
	}
	r := newRig(t, cfg)
	_, epB, errA, errB := r.tryConnect(r.withToken([32]byte{1, 2, 3}), r.b.config())
	wantKind(t, errA, errs.Perm)
	if errB == nil {
		r.b.ep = epB
		r.b.dies(errs.Disconnected)
		check(t, epB.Close())
	} else if kind := errs.KindOf(errB); kind == errs.Closed {
		t.Fatalf("the listener ended: %v", errB)
	}
	r.a.ep, r.b.ep = r.connect(r.a.config(), r.b.config())
	r.barrier()
}
