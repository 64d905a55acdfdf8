package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// everyCommand calls fn for every command that people see.
func everyCommand(t *testing.T, fn func(t *testing.T, cmd *cobra.Command)) {
	root := newRoot()
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, cmd := range manCommands(root) {
		if strings.HasPrefix(cmd.CommandPath(), "sluice completion") {
			continue // of the library
		}
		t.Run(strings.ReplaceAll(cmd.CommandPath(), " ", "-"), func(t *testing.T) { fn(t, cmd) })
	}
}

// TestEveryCommandExplainsItself: one sentence, more than one sentence, an example that calls it
// with flags that it has, and lines that fit a terminal.
func TestEveryCommandExplainsItself(t *testing.T) {
	seen := map[string]bool{}
	everyCommand(t, func(t *testing.T, cmd *cobra.Command) {
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") || len(cmd.Short) > 85 {
			t.Errorf("Short is %q", cmd.Short)
		}
		if seen[cmd.Short] {
			t.Errorf("another command says the same: %s", cmd.Short)
		}
		seen[cmd.Short] = true
		if len(cmd.Long) < 80 || strings.TrimSuffix(cmd.Long, ".") == cmd.Short {
			t.Errorf("Long is %q", cmd.Long)
		}
		for _, line := range strings.Split(cmd.Long+"\n"+cmd.Example, "\n") {
			if len(line) > 100 {
				t.Errorf("%d columns: %s", len(line), line)
			}
		}
		if !strings.Contains(cmd.Example, cmd.CommandPath()) {
			t.Errorf("the example does not call it: %q", cmd.Example)
		}
		checkExample(t, cmd)
	})
}

// checkExample looks for flags in an example that no command has.
func checkExample(t *testing.T, cmd *cobra.Command) {
	t.Helper()
	root := cmd.Root()
	for _, line := range strings.Split(cmd.Example, "\n") {
		line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
		line, _, _ = strings.Cut(line, " | ")
		line, _, _ = strings.Cut(line, " > ")
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "sluice" {
			continue
		}
		words = singleDash(root, words[1:])
		target, _, err := root.Find(words)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		target.InitDefaultHelpFlag()
		for _, w := range words {
			name, _, _ := strings.Cut(strings.TrimPrefix(w, "--"), "=")
			if strings.HasPrefix(w, "--") && name != "" && target.Flags().Lookup(name) == nil &&
				target.InheritedFlags().Lookup(name) == nil {
				t.Errorf("%s: there is no flag %s", line, w)
			}
		}
	}
}

// silentCommands print nothing that a program could want as JSON, each with the reason.
func silentCommands() map[string]string {
	return map[string]string{
		"sluice":            "shows its help",
		"sluice array":      "shows its help",
		"sluice bench":      "shows its help",
		"sluice client":     "shows its help",
		"sluice config":     "shows its help",
		"sluice hints":      "shows its help",
		"sluice host":       "shows its help",
		"sluice key":        "shows its help",
		"sluice token":      "shows its help",
		"sluice layout":     "shows its help",
		"sluice pool":       "shows its help",
		"sluice quota":      "shows its help",
		"sluice store":      "shows its help",
		"sluice server":     "shows its help",
		"sluice volume":     "shows its help",
		"sluice cat":        "prints files",
		"sluice meta":       "a server, whose state is in sluice status",
		"sluice iod":        "a server, whose state is in sluice status",
		"sluice nbd":        "a server, whose state is in its log",
		"sluice mount":      "a server, whose state is in sluice status",
		"sluice umount":     "prints nothing",
		"sluice hints set":  "prints nothing",
		"sluice quota rm":   "prints nothing",
		"sluice demo":       "is for people",
		"sluice meta load":  "is for people, once in the life of a cluster",
		"sluice store dump": "has --json, a document for each record",
	}
}

// TestEveryCommandPrintsJSON holds commands to --json, and its documents to small letters and to
// being told in the help.
func TestEveryCommandPrintsJSON(t *testing.T) {
	silent := silentCommands()
	everyCommand(t, func(t *testing.T, cmd *cobra.Command) {
		reason, exempt := silent[cmd.CommandPath()]
		f := cmd.Flags().Lookup("json")
		switch {
		case f == nil && !exempt:
			t.Errorf("has no --json")
		case f == nil || exempt:
			t.Logf("no --json: %s", reason)
		case !strings.Contains(cmd.Long, "--json"):
			t.Errorf("its help does not tell what --json prints")
		}
		_, shape, found := strings.Cut(cmd.Long, "With --json one document is printed:")
		if found && regexp.MustCompile(`[A-Z]`).MatchString(strings.SplitN(shape, ".", 2)[0]) {
			t.Errorf("keys with capitals: %s", shape)
		}
	})
}

// TestManPages writes all pages and has them read by man(1), if it is there.
func TestManPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	root := newRoot()
	root.SetArgs([]string{"man", dir})
	root.SetOut(os.Stderr)
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	man, err := exec.LookPath("man")
	if err != nil {
		man = ""
	}
	everyCommand(t, func(t *testing.T, cmd *cobra.Command) {
		name := filepath.Join(dir, manName(cmd)+".1")
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES"} {
			if !strings.Contains(string(text), ".SH "+section+"\n") {
				t.Errorf("no section %s", section)
			}
		}
		if man == "" {
			t.Skip("needs man: make deps")
		}
		run := exec.Command(man, "--warnings", "-l", name)
		run.Env = append(os.Environ(), "MANPAGER=cat", "PAGER=cat", "MANWIDTH=100", "LC_ALL=C.UTF-8",
			"MANROFFSEQ=")
		var problems strings.Builder
		run.Stderr = &problems
		out, err := run.Output()
		if err != nil || problems.Len() > 0 {
			t.Fatalf("man: %v, %s", err, problems.String())
		}
		shown := string(out)
		for _, want := range []string{cmd.CommandPath(), "EXIT STATUS"} {
			if !strings.Contains(plainText(shown), want) {
				t.Errorf("man does not show %q:\n%s", want, shown)
			}
		}
	})
}

// plainText takes overstriking and colours away.
func plainText(text string) string {
	text = regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(text, "")
	return regexp.MustCompile(".\x08").ReplaceAllString(text, "")
}

func TestManEscapes(t *testing.T) {
	for in, want := range map[string]string{
		`.hidden`: `\&.hidden`, `'quoted'`: `\(aqquoted\(aq`, `a\b`: `a\eb`, `--x`: `\-\-x`,
		`plain`: `plain`, `~/x`: `\(ti/x`,
	} {
		if got := protected(in); got != want {
			t.Errorf("%s became %s, not %s", in, got, want)
		}
	}
	for in, want := range map[string]string{"Print files": "print files", "NBD server": "NBD server"} {
		if got := lowerFirst(in); got != want {
			t.Errorf("%s became %s", in, got)
		}
	}
}
