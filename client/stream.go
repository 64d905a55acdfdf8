package client

import (
	"context"
	"io"
	"sync"
)

// Stream is a File seen through the interfaces of package io: Reader, Writer, Seeker, ReaderAt,
// WriterAt. It has a position of its own, under a lock of its own. Closing it is closing the File.
// Each of its reads and writes is one of the File: Reader and Writer are faster for much data in
// order, because they read ahead and write behind.
type Stream struct {
	ctx context.Context
	f   *File

	mu  sync.Mutex // held during a Read or Write, because the position is the operation's order
	pos int64
}

// IO returns a view of the file for code that knows package io. ctx bounds every operation of the
// view.
func (f *File) IO(ctx context.Context) *Stream { return &Stream{ctx: ctx, f: f} }

// Read reads from the position on.
func (s *Stream) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.f.ReadAt(s.ctx, p, s.pos)
	s.pos += int64(n)
	if n > 0 && err == io.EOF {
		err = nil
	}
	return n, err
}

// Write writes at the position, or at the end of a file that was opened with O_APPEND.
func (s *Stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.f.append {
		off, err := s.f.Append(s.ctx, p)
		if err != nil {
			return 0, err
		}
		s.pos = off + int64(len(p))
		return len(p), nil
	}
	n, err := s.WriteAt(p, s.pos)
	s.pos += int64(n)
	return n, err
}

// Seek moves the position.
func (s *Stream) Seek(offset int64, whence int) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to, err := seekTo(s.ctx, s.f, s.pos, offset, whence)
	if err == nil {
		s.pos = to
	}
	return s.pos, err
}

// ReadAt reads at an offset and leaves the position alone.
func (s *Stream) ReadAt(p []byte, off int64) (int, error) { return s.f.ReadAt(s.ctx, p, off) }

// WriteAt writes at an offset and leaves the position alone.
func (s *Stream) WriteAt(p []byte, off int64) (int, error) {
	if s.f.durable {
		return s.f.WriteAtDurable(s.ctx, p, off)
	}
	return s.f.WriteAt(s.ctx, p, off)
}

// Sync is File.Sync.
func (s *Stream) Sync() error { return s.f.Sync(s.ctx) }

// Close is File.Close.
func (s *Stream) Close() error { return s.f.Close(s.ctx) }

var (
	_ io.ReadWriteSeeker = (*Stream)(nil)
	_ io.ReaderAt        = (*Stream)(nil)
	_ io.WriterAt        = (*Stream)(nil)
	_ io.Closer          = (*Stream)(nil)
)
