package store

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// Find implements meta.Finds.
func (s *Store) Find(context.Context, meta.Caller, meta.Ino, string) (meta.Found, error) {
	return meta.Found{}, errs.Unsupported
}

// CloseMany implements meta.Files.
func (s *Store) CloseMany(context.Context, meta.Caller, []meta.Closing) ([]errs.Kind, error) {
	return nil, errs.Unsupported
}

// ReadSmall implements meta.Smalls.
func (s *Store) ReadSmall(context.Context, meta.Caller, meta.Ino) (meta.Attr, []byte, error) {
	return meta.Attr{}, nil, errs.Unsupported
}

// MoveOut implements meta.Smalls.
func (s *Store) MoveOut(context.Context, meta.Caller, meta.Change, uint64) (meta.Attr, error) {
	return meta.Attr{}, errs.Unsupported
}

// Listen implements meta.Leases.
func (s *Store) Listen(context.Context, meta.Listening) (meta.Heard, error) {
	return meta.Heard{Life: s.life}, nil
}
