package logonce

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestOncePerPeerAndPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := Logger{Log: slog.New(slog.NewTextHandler(&out, nil))}
		lines := func() int {
			defer out.Reset()
			return strings.Count(out.String(), "\n")
		}
		for range 5 {
			l.Warn("10.0.0.1", "refused", "why", "expired")
		}
		if n := lines(); n != 1 {
			t.Fatalf("%d lines for five refusals of one peer", n)
		}
		l.Warn("10.0.0.2", "refused")
		if n := lines(); n != 1 {
			t.Fatalf("%d lines for another peer", n)
		}
		time.Sleep(time.Minute)
		l.Warn("10.0.0.1", "refused")
		if text := out.String(); !strings.Contains(text, "repeated=4") {
			t.Fatalf("after a minute: %q", text)
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	l := Logger{Log: slog.New(slog.DiscardHandler), Peers: 10}
	for i := range 1000 {
		l.Warn(fmt.Sprint(i), "refused")
	}
	if len(l.said) > 10 {
		t.Fatalf("%d peers remembered", len(l.said))
	}
}
