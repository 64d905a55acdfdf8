package main

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// completions asks the program, as a shell does: the words that are offered, and the directive.
func (s *session) completions(words ...string) (found []string, directive string) {
	s.t.Helper()
	if err := s.exec(append([]string{"sluice", "__complete"}, words...)); err != nil {
		s.t.Fatalf("%q: %v, %s", words, err, s.stderr)
	}
	for _, line := range strings.Split(strings.TrimSpace(s.stdout), "\n") {
		if d, ok := strings.CutPrefix(line, ":"); ok {
			return found, d
		}
		word, _, _ := strings.Cut(line, "\t")
		found = append(found, word)
	}
	s.t.Fatalf("%q: no directive in %q", words, s.stdout)
	return nil, ""
}

// What cobra's directives are as numbers.
const (
	spaceNoFiles   = "4"
	noSpaceNoFiles = "6"
	shellsFiles    = "0"
	foldersOnly    = "16"
)

// TestCompletion completes commands, flags, values, paths on a running cluster and volumes, by the
// program itself and, where there is one, in a bash.
func TestCompletion(t *testing.T) {
	s := newSession(t, linkSelf(t))
	for _, c := range []struct{ words, want, directive string }{
		{"trunc", "truncate", spaceNoFiles},
		{"volume cr", "create", spaceNoFiles},
		{"cp --resu", "--resume", spaceNoFiles},
		{"cp --sparse ", "auto always never", spaceNoFiles},
		{"cp --mode d", "cached stream direct cached-writes", spaceNoFiles},
		{"ls --sort ", "name time size none", spaceNoFiles},
		{"nbd --export name=a,v", "name=a,volume=", noSpaceNoFiles},
		{"umount x", "", foldersOnly},
		{"cp x", "", shellsFiles},
		{"ls s", "sluice:/", noSpaceNoFiles},
		{"ls /", "", spaceNoFiles}, // nobody is there: no names, and no complaint
	} {
		got, directive := s.completions(strings.Split(c.words, " ")...)
		if strings.Join(got, " ") != c.want || directive != c.directive {
			t.Errorf("%q: %q :%s", c.words, got, directive)
		}
	}
	s.play(`exec sluice up -d --mem --dir c --iods 1 --listen 127.0.0.1:0
use c
exec sluice mkdir -p /data/deep /dark
exec sluice touch /data/one '/data/two words' /data/.hidden /file
exec sluice volume create disk 1M
exec sluice volume create other 1M`)
	url := s.env["SLUICE_URL"]
	for _, c := range []struct {
		words     []string
		want      string
		directive string
	}{
		{[]string{"ls", ""}, "/dark/ /data/ /file", noSpaceNoFiles},
		{[]string{"ls", "/da"}, "/dark/ /data/", noSpaceNoFiles},
		{[]string{"ls", "/fi"}, "/file", spaceNoFiles},
		{[]string{"cat", "/data/"}, "/data/deep/ /data/one /data/two words", noSpaceNoFiles},
		{[]string{"cat", "/data/."}, "/data/.hidden", spaceNoFiles},
		{[]string{"mkdir", "/data/"}, "/data/deep/", noSpaceNoFiles},
		{[]string{"cat", "sluice:/data/o"}, "sluice:/data/one", spaceNoFiles},
		{[]string{"cp", "x", "sluice:/da"}, "sluice:/dark/ sluice:/data/", noSpaceNoFiles},
		{[]string{"cp", "/fi"}, "/file", spaceNoFiles},
		{[]string{"cp", "/tm"}, "", shellsFiles},
		{[]string{"find", "/data", "-name", "x", "/da"}, "/dark/ /data/", noSpaceNoFiles},
		{[]string{"rm", "--url", url, "/file", "/data/o"}, "/data/one", spaceNoFiles},
		{[]string{"ls", url + "/fi"}, url + "/file", spaceNoFiles},
		{[]string{"chmod", "/"}, "", spaceNoFiles},
		{[]string{"chmod", "644", "/fi"}, "/file", spaceNoFiles},
		{[]string{"volume", "rm", ""}, "disk other", spaceNoFiles},
		{[]string{"volume", "rm", "o"}, "other", spaceNoFiles},
		{[]string{"nbd", "--export", "name=x,volume=d"}, "name=x,volume=disk", noSpaceNoFiles},
		{[]string{"hints", "set", "cache.mode=cached", "/fi"}, "/file", spaceNoFiles},
	} {
		got, directive := s.completions(c.words...)
		if strings.Join(got, " ") != c.want || directive != c.directive {
			t.Errorf("%q: %q :%s, want %q :%s", c.words, got, directive, c.want, c.directive)
		}
	}
	completeInBash(s)
}

// bashLine has bash complete a line, and prints what it offers.
const bashLine = `
if ! declare -F _get_comp_words_by_ref >/dev/null; then
	# What the package bash-completion has: the words of the line without breaks at = and :.
	_get_comp_words_by_ref() {
		words=($COMP_LINE) cword=$((${#words[@]} - 1))
		[[ $COMP_LINE == *" " ]] && words+=("") && cword=$((cword + 1))
		cur=${words[cword]} prev=${words[cword - 1]}
	}
	__ltrim_colon_completions() {
		local i=${#COMPREPLY[@]} colon=${1%"${1##*:}"}
		[[ $1 == *:* && $COMP_WORDBREAKS == *:* ]] || return 0
		while [[ $((--i)) -ge 0 ]]; do COMPREPLY[$i]=${COMPREPLY[$i]#"$colon"}; done
	}
fi
compopt() { :; } # bash refuses it outside of a completion
source <(sluice completion bash)
COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9 COMP_KEY=9
COMP_WORDS=($1)
[[ $1 == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
__start_sluice
printf '%s\n' "${COMPREPLY[@]}"
`

func completeInBash(s *session) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		s.t.Log("no bash here: its script is not tried")
		return
	}
	for line, want := range map[string]string{
		"sluice trunc":           "truncate",
		"sluice cp --veri":       "--verify",
		"sluice ls /da":          "/dark/ /data/",
		"sluice cat /data/o":     "/data/one",
		"sluice volume rm d":     "disk",
		"sluice ls --sort ":      "name none size time",
		"sluice cat sluice:/fil": "/file",
	} {
		if err := s.exec([]string{bash, "--norc", "-c", bashLine, "bash", line}); err != nil {
			s.t.Errorf("%q: %v, %s", line, err, s.stderr)
			continue
		}
		got := strings.Fields(s.stdout)
		slices.Sort(got)
		if strings.Join(got, " ") != want || s.stderr != "" {
			s.t.Errorf("%q: %q, want %q; %s", line, got, want, s.stderr)
		}
	}
	for _, shell := range []string{"zsh", "fish"} {
		if err := s.exec([]string{"sluice", "completion", shell}); err != nil ||
			!strings.Contains(s.stdout, "__complete") {
			s.t.Errorf("completion %s: %v", shell, err)
		}
		if _, err := exec.LookPath(shell); err != nil {
			continue
		}
		write(s.t, filepath.Join(s.dir, shell), []byte(s.stdout))
		if err := s.exec([]string{shell, "-n", shell}); err != nil {
			s.t.Errorf("%s does not read its script: %s", shell, s.stderr)
		}
	}
}
