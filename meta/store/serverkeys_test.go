package store_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/metatest"
	"github.com/sluice-storage/sluice/meta/store"
)

// TestRefusalsAreToldOnce: who claims what is not his is counted each time, and told once for each
// peer, whatever he claims and however often.
func TestRefusalsAreToldOnce(t *testing.T) {
	engine := memkv.New(memkv.Options{})
	var log bytes.Buffer
	s, err := store.New(t.Context(), engine, store.Options{Objects: metatest.NewObjects(),
		Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"a", "b"} {
		_, err := s.EnlistMember(t.Context(), meta.Caller{}, meta.Member{Kind: identity.Host, Name: name,
			Roles: identity.RoleIod, Certificates: []meta.Certificate{{
				Serial: identity.Serial{byte(i + 1)}, NotAfter: time.Now().Add(time.Hour).UnixNano()}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	own := meta.Peer{Kind: identity.Host, Name: "own"}
	session, err := s.NewSession(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		for _, p := range []meta.Peer{own, {Kind: identity.Host, Name: "a"},
			{Kind: identity.Host, Name: "b"}} {
			_, err := s.ServerKeys(t.Context(), meta.Caller{Peer: p}, uint32(i+1), 0)
			if errs.KindOf(err) != errs.Perm {
				t.Fatal(err)
			}
			srv := meta.Server{ID: uint32(i + 1), Addr: "a:1"}
			err = s.Join(meta.WithPeer(t.Context(), p), srv, [32]byte{byte(i)})
			if errs.KindOf(err) != errs.Forged {
				t.Fatal(err)
			}
			if err := s.Admit(p, session.ID); errs.KindOf(err) != errs.Perm {
				t.Fatal(err)
			}
		}
	}
	st, err := s.Status()
	if err != nil || st.Refused != 120 || st.Strangers != 60 {
		t.Fatalf("%v: %d and %d are counted", err, st.Refused, st.Strangers)
	}
	s.Stop()
	_ = engine.Close()
	for _, name := range []string{"own", "a", "b"} {
		for _, what := range []string{"refused an I/O server", "refused a member"} {
			line := fmt.Sprintf("msg=%q peer=%q", what, "host "+name)
			if n := strings.Count(log.String(), line); n != 1 {
				t.Errorf("%s: told %d times:\n%s", line, n, log.String())
			}
		}
	}
}
