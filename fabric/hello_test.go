package fabric

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := NewTokens(2)
		first, err := tokens.Issue("left", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		peer, answer, err := tokens.Admit(Hello{Token: first})
		if err != nil || peer.Proof != ProofToken || peer.Name != "left" {
			t.Fatalf("%+v, %v", peer, err)
		}
		if err := CheckAnswer(&Hello{Token: first}, &Hello{Token: answer}); err != nil {
			t.Fatal(err)
		}
		if err := CheckAnswer(&Hello{Token: first}, &Hello{}); errs.KindOf(err) != errs.Perm {
			t.Fatalf("a listener that does not know the token: %v", err)
		}
		refused := func(what string, token [32]byte) {
			t.Helper()
			if _, _, err := tokens.Admit(Hello{Token: token}); errs.KindOf(err) != errs.Perm {
				t.Fatalf("%s: %v", what, err)
			}
		}
		refused("used twice", first)
		refused("never issued", [32]byte{1})
		refused("none", [32]byte{})
		for range 2 {
			if first, err = tokens.Issue("left", time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := tokens.Issue("left", time.Minute); errs.KindOf(err) != errs.Again {
			t.Fatalf("one more than the limit: %v", err)
		}
		time.Sleep(time.Minute + 1)
		refused("too old", first)
		if _, err := tokens.Issue("left", time.Minute); err != nil {
			t.Fatalf("the old ones are gone: %v", err)
		}
	})
}

func TestWithoutTokensEverybodyIsAdmitted(t *testing.T) {
	var none *Tokens
	peer, answer, err := none.Admit(Hello{Identity: 7})
	if err != nil || peer.Proof != ProofNone || peer.Identity != 7 || answer != [32]byte{} {
		t.Fatalf("%+v, %x, %v", peer, answer, err)
	}
}

func TestRefusalKind(t *testing.T) {
	for kind, want := range map[errs.Kind]errs.Kind{
		errs.Perm: errs.Perm, errs.Forged: errs.Perm, errs.Again: errs.Again,
		errs.Version: errs.Version, errs.NoMemory: errs.Disconnected,
	} {
		if got := RefusalKind(errs.New(kind, "", "", errors.New("x"))); got != want {
			t.Errorf("%v becomes %v, want %v", kind, got, want)
		}
	}
}
