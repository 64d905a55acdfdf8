package main

import (
	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/iod"
)

// refusals are the metrics of what clients asked for beyond their rights.
func (h *metaHandler) refusals(f *families) {
	for _, c := range h.server.Refused() {
		f.by(admin.Counter, "meta_refused_total",
			"Requests of clients that went beyond their rights, by reason.", "reason", c.Reason,
			float64(c.N))
	}
}

// refused are the same numbers for status, as far as there are any.
func (h *metaHandler) refused() (out []iod.Count) {
	for _, c := range h.server.Refused() {
		if c.N > 0 {
			out = append(out, iod.Count{Name: "refused_" + c.Reason, Value: c.N})
		}
	}
	return out
}
