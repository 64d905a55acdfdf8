// Package logonce limits the rate of log messages about one peer, so that peers that are refused
// repeatedly do not fill the log. A message says how many were left out since the last one. It does
// not write logs itself: a slog.Logger does.
package logonce

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Logger writes a message about a peer at most once a Period. Safe for concurrent use. It remembers
// at most Peers peers; beyond that it forgets all of them and starts anew.
type Logger struct {
	Log    *slog.Logger  // nil: slog.Default()
	Period time.Duration // default a minute
	Peers  int           // default 1024

	mu   sync.Mutex
	said map[string]record
}

type record struct {
	at      time.Time
	omitted int
}

// Warn logs msg about peer, unless one was logged about this peer within the Period.
func (l *Logger) Warn(peer, msg string, args ...any) {
	omitted, say := l.due(peer, msg)
	if !say {
		return
	}
	log := l.Log
	if log == nil {
		log = slog.Default()
	}
	args = append([]any{"peer", peer}, args...)
	if omitted > 0 {
		args = append(args, "repeated", omitted)
	}
	log.Log(context.Background(), slog.LevelWarn, msg, args...)
}

func (l *Logger) due(peer, msg string) (omitted int, say bool) {
	period, peers := l.Period, l.Peers
	if period == 0 {
		period = time.Minute
	}
	if peers == 0 {
		peers = 1024
	}
	key := peer + "\x00" + msg
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	r, known := l.said[key]
	if known && now.Sub(r.at) < period {
		r.omitted++
		l.said[key] = r
		return 0, false
	}
	if l.said == nil || !known && len(l.said) >= peers {
		l.said = map[string]record{}
	}
	l.said[key] = record{at: now}
	return r.omitted, true
}
