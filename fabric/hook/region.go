package hook

import "github.com/sluice-storage/sluice/fabric"

// Region wraps registered memory.
type Region struct {
	dom   *Domain
	inner fabric.Region
}

// Bytes implements fabric.Region.
func (r *Region) Bytes() []byte { return r.inner.Bytes() }

// Grant implements fabric.Region.
func (r *Region) Grant(ep fabric.Endpoint, off, length int, rights fabric.Rights) (
	fabric.Remote, error,
) {
	return r.inner.Grant(r.dom.unwrapEndpoint(ep), off, length, rights)
}

// Revoke implements fabric.Region.
func (r *Region) Revoke(rem fabric.Remote) { r.inner.Revoke(rem) }

// Close implements fabric.Region.
func (r *Region) Close() error { return r.inner.Close() }

// regionBase is found in whatever embeds a Region.
func (r *Region) regionBase() *Region { return r }

// unwrapRegion gives the region below, of a region of this domain.
func (d *Domain) unwrapRegion(reg fabric.Region) fabric.Region {
	if w, ok := reg.(interface{ regionBase() *Region }); ok {
		if r := w.regionBase(); r.dom == d {
			return r.inner
		}
	}
	return reg
}
