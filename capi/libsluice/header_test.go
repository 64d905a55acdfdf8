package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	comments = regexp.MustCompile(`(?s)/\*.*?\*/`)
	function = regexp.MustCompile(`(?m)^[a-z][a-z0-9_ ]*[ *](sluice_[a-z_]+)\(`)
)

// functionsOf lists the functions that a header declares.
func functionsOf(header string) (names []string) {
	for _, m := range function.FindAllStringSubmatch(comments.ReplaceAllString(header, ""), -1) {
		names = append(names, m[1])
	}
	return names
}

// TestManual holds the manual page against sluice.h: every function has its place in it.
func TestManual(t *testing.T) {
	header, err := os.ReadFile("sluice.h")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("libsluice.3")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range functionsOf(string(header)) {
		if !strings.Contains(string(page), name) {
			t.Errorf("libsluice.3 says nothing of %s", name)
		}
	}
}
