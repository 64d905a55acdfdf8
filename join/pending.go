package join

import (
	"crypto/ed25519"
	"os"
	"strconv"
	"strings"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
)

// Pending is a join that has begun: the key is written down before anybody hears of it, beside
// where the credential is going to be. A joiner that died goes on with it: it gets the same
// membership without another use of the token.
type Pending struct {
	Key  ed25519.PrivateKey
	file string
}

// Begin takes up the join by a token whose credential goes to file, or begins it.
func Begin(file string, t identity.Token) (*Pending, error) {
	p := &Pending{file: file + ".joining"}
	id := strconv.FormatUint(t.ID, 16)
	text, err := identity.ReadPrivate(p.file)
	if err == nil {
		var seed string
		if token, rest, ok := strings.Cut(strings.TrimSpace(string(text)), " "); ok && token == id {
			seed = rest
		}
		if key, ok := identity.ParseSeed(seed); ok {
			p.Key = key
			return p, nil
		}
	} else if errs.KindOf(err) != errs.NotFound {
		return nil, err
	}
	p.Key = identity.NewKey()
	return p, identity.WritePrivate(p.file, []byte(id+" "+identity.FormatSeed(p.Key)+"\n"))
}

// Done is called when the credential is written.
func (p *Pending) Done() error {
	if err := os.Remove(p.file); err != nil && !os.IsNotExist(err) {
		return errs.Wrap("join", p.file, err)
	}
	return nil
}

// Begun tells whether a join was begun whose credential goes to file, and not ended.
func Begun(file string) bool {
	_, err := os.Lstat(file + ".joining")
	return err == nil
}
