package server

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/stripe"
)

// MaxFile is the highest file number of an object that exists, or has existed since the server
// started. The metadata service allocates only higher ones: if it has lost its history, new files
// do not show the data of these objects.
func (s *Server) MaxFile() uint64 { return s.maxFile.Load() }

func (s *Server) findMaxFile() error {
	err := s.cfg.Store.List(context.Background(), func(i stripe.Info) bool {
		s.raiseMaxFile(i.ID.File)
		return true
	})
	return errs.Wrap("iod/server.New", "", err)
}

// noteFile is called for every admitted request.
func (s *Server) noteFile(op iod.Op, file uint64) {
	switch op {
	case iod.OpWrite, iod.OpPunch, iod.OpTruncate, iod.OpReserve:
		s.raiseMaxFile(file)
	}
}

func (s *Server) raiseMaxFile(file uint64) {
	for {
		have := s.maxFile.Load()
		if file <= have || s.maxFile.CompareAndSwap(have, file) {
			return
		}
	}
}
