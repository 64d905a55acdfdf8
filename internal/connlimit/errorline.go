package connlimit

import "strings"

// ParseErrorLine takes the peer's address and the reason out of what package http logs, like
// "http: TLS handshake error from 10.0.0.7:4711: EOF". What it does not know it leaves as it is.
func ParseErrorLine(line string) (addr, why string) {
	line = strings.TrimSpace(line)
	if i := strings.IndexByte(line, '\n'); i >= 0 {
		line = line[:i] // a panic goes on with its stack
	}
	_, rest, ok := strings.Cut(line, " from ")
	if !ok {
		return "unknown", line
	}
	at, why, ok := strings.Cut(rest, ": ")
	if !ok {
		return "unknown", line
	}
	return Host(at), why
}
