package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-storage/sluice/vmtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOptions(t *testing.T) {
	good, err := parse([]string{"--guests", "2", "--memory=512", "--cpus", "1", "--timeout", "3m",
		"--peer", "sleep 5", "--share", "here", "--", "ls", "-l", "--guests"}, nil)
	if err != nil || good.guests != 2 || good.memory != 512 || good.cpus != 1 ||
		good.timeout != 3*time.Minute || good.peer != "sleep 5" || !filepath.IsAbs(good.share) ||
		!slices.Equal(good.command, []string{"ls", "-l", "--guests"}) {
		t.Errorf("%+v, %v", good, err)
	}
	if plain, err := parse([]string{"true"}, nil); err != nil || plain.guests != 1 {
		t.Errorf("%+v, %v", plain, err)
	}
	for line, want := range map[string]string{
		"":                     "no command",
		"--guests 3 -- true":   "--guests 3",
		"--peer x -- true":     "--guests 2",
		"--memory 1 -- true":   "--memory 1",
		"--cpus 0 -- true":     "--cpus 0",
		"--timeout 0s -- true": "--timeout",
		"--timeout x -- true":  "timeout",
		"--nothing -- true":    "nothing",
		"--prepare -- true":    "--prepare",
	} {
		var problems bytes.Buffer
		code := run(t.Context(), strings.Fields(line), nil, &problems)
		if code != codeUsage || !strings.Contains(problems.String(), want) ||
			strings.Count(problems.String(), "\n") != 2 {
			t.Errorf("%q: %d: %s", line, code, problems.String())
		}
	}
	var help bytes.Buffer
	if _, err := parse([]string{"--help"}, &help); !errors.Is(err, flag.ErrHelp) {
		t.Error(err)
	}
	for _, word := range []string{"-guests", "-memory", "-cpus", "-timeout", "COMMAND", "LAB_PEER"} {
		if !strings.Contains(help.String(), word) {
			t.Errorf("the help does not say %s", word)
		}
	}
}

func TestNoLabIsToldClearly(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var problems bytes.Buffer
	code := run(t.Context(), []string{"--", "true"}, nil, &problems)
	if code != codeFailed || !strings.Contains(problems.String(), "qemu-system-x86") {
		t.Errorf("%d: %s", code, problems.String())
	}
}

func TestPrefixed(t *testing.T) {
	var b bytes.Buffer
	p := &prefixed{to: &b, prefix: "> "}
	for _, piece := range []string{"on", "e\ntwo\n", "", "th", "ree"} {
		if n, err := p.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	p.flush()
	p.flush()
	if got := b.String(); got != "> one\n> two\n> three\n" {
		t.Errorf("%q", got)
	}
}

func TestQuote(t *testing.T) {
	if got, want := quote([]string{"a", "b c", "it's", ""}), `'a' 'b c' 'it'\''s' ''`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// first notes when the first output came.
type first struct {
	bytes.Buffer
	at time.Time
}

func (f *first) Write(p []byte) (int, error) {
	if f.at.IsZero() {
		f.at = time.Now()
	}
	return f.Buffer.Write(p)
}

// TestTwoGuests has a command talk to the peer by RDMA, print before it ends, and fail.
func TestTwoGuests(t *testing.T) {
	vmtest.Need(t)
	share, here := t.TempDir(), t.TempDir()
	t.Chdir(here)
	if err := os.WriteFile("script", []byte(`
		echo "in $PWD, $1"
		until [ -e /host-rw/listens ]; do sleep 0.1; done
		ib_send_lat -d rxe0 -x 1 -F -n 20 $LAB_PEER | grep -c t_typical
		echo problem >&2
		sleep 1
		exit 7
	`), 0o644); err != nil {
		t.Fatal(err)
	}
	const peer = `ib_send_lat -d rxe0 -x 1 -F -n 20 >/dev/null &
		until ss -Hltnp | grep -q ib_send_lat; do sleep 0.1; done
		touch /host-rw/listens; echo here; sleep 1000`
	var out first
	var problems bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	code := run(ctx, []string{"--guests", "2", "--memory", "512", "--cpus", "1", "--timeout", "5m",
		"--share", share, "--peer", peer, "--", "bash", "script", "it's here"}, &out, &problems)
	if took := time.Since(out.at); code != 7 || took < time.Second {
		t.Errorf("code %d, %v after the first line", code, took)
	}
	if got, want := out.String(), "in "+here+", it's here\n1\n"; got != want {
		t.Errorf("it printed %q, want %q", got, want)
	}
	if got := problems.String(); !strings.Contains(got, "problem\n") ||
		!strings.Contains(got, "peer: here\n") {
		t.Errorf("problems: %q", got)
	}
	if _, err := os.Stat(filepath.Join(share, "listens")); err != nil {
		t.Error(err)
	}
}
