package peer

import (
	"slices"
	"strings"

	"github.com/sluice-storage/sluice/errs"
)

// An address says where a server is, for each provider that it can be reached by:
//
//	tcp:10.1.0.1:9400,tcp:10.2.0.1:9400,shm:/run/sluice/iod-1,verbs:10.1.0.1:9400
//
// Of several places of one provider the server's best network comes first; who dials tries them in
// an order of its own, see networks.go.
//
// What has no provider's name before it is for the last step of a network's ladder:
// "127.0.0.1:9400" is tcp's, where that is tcp. A place of shm may leave out its "unix:".

// place is one element of an address.
type place struct {
	provider string // empty: of the last step
	at       string // as the provider takes it
}

// Limits of an address, which may come from a peer.
const (
	maxAddress = 1024
	maxPlaces  = 16
)

// parseAddress reads an address for a network that has these providers, best first.
func parseAddress(addr string, has []string) ([]place, error) {
	bad := func(why string) ([]place, error) {
		return nil, errs.Newf(errs.Invalid, "peer.Address", addr, "%s", why)
	}
	parts := strings.Split(addr, ",")
	if len(addr) > maxAddress || len(parts) > maxPlaces {
		return bad("too long")
	}
	known, last := append(Names(), has...), TCP
	if len(has) > 0 {
		last = has[len(has)-1]
	}
	var all []place
	for _, part := range parts {
		p := place{at: part}
		name, rest, ok := strings.Cut(part, ":")
		switch {
		case ok && slices.Contains(known, name):
			p = place{provider: name, at: rest}
		case ok && name == "unix":
			p.provider = SHM
		}
		if p.provider == SHM {
			for strings.HasPrefix(p.at, "unix:") {
				p.at = p.at[len("unix:"):]
			}
		}
		if p.at == "" {
			return bad("an empty place")
		}
		if p.provider == SHM && (p.at[0] == '/' || p.at[0] == '@') {
			p.at = "unix:" + p.at
		}
		same := func(o place) bool { return o.named(last) == p.named(last) && o.at == p.at }
		if slices.ContainsFunc(all, same) {
			return bad("the same place twice")
		}
		all = append(all, p)
	}
	if len(formatAddress(all, last)) > maxAddress { // with all names it is longer
		return bad("too long")
	}
	return all, nil
}

// named is the provider that a place means, on a network whose last step is of this name.
func (p place) named(last string) string {
	if p.provider == "" {
		return last
	}
	return p.provider
}

// misread tells whether the place alone would be taken for that of a provider.
func (p place) misread() bool {
	name, _, ok := strings.Cut(p.at, ":")
	return ok && (name == "unix" || slices.Contains(Names(), name))
}

// formatAddress is what parseAddress reads. A single place of the last step needs no name, unless
// that is verbs: networks with another last step would take it for theirs. A host that is called
// like a provider needs one, too.
func formatAddress(all []place, last string) string {
	if len(all) == 1 && all[0].named(last) == last && last != Verbs && !all[0].misread() {
		return all[0].at
	}
	var parts []string
	for _, p := range all {
		if p.provider == "" {
			p.provider = last
		}
		at := p.at
		if p.provider == SHM {
			at = strings.TrimPrefix(at, "unix:")
		}
		parts = append(parts, p.provider+":"+at)
	}
	return strings.Join(parts, ",")
}
