//go:build !cgo || !linux || !(amd64 || arm64)

package verbs

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

const noCgo = "built without cgo: no RDMA"

// Available tells whether the RDMA libraries can be used here, and if not why.
func Available() (ok bool, why string) { return false, noCgo }

// Devices names the RDMA devices of this machine.
func Devices() ([]string, error) { return nil, errs.Newf(errs.Unsupported, "verbs", "", noCgo) }

// Open makes a domain.
func Open(opts Options) (fabric.Domain, error) {
	if err := opts.withDefaults().validate(); err != nil {
		return nil, err
	}
	return nil, errs.Newf(errs.Unsupported, "verbs.Open", "", noCgo)
}
