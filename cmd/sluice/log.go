package main

import (
	"log/slog"
	"os"
)

// newLogger is for processes that stay: their standard error is a file in the cluster's log folder,
// or a terminal, where only trouble is shown.
func newLogger() *slog.Logger {
	level := slog.LevelInfo
	if isTerminal(os.Stderr) {
		level = slog.LevelWarn
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}
