package main

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd/diskexport"
	"github.com/sluice-storage/sluice/relay"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "4096": 4096, "1B": 1, "64K": 64 << 10, "64k": 64 << 10, "64KiB": 64 << 10,
		"10M": 10 << 20, "3G": 3 << 30, "2T": 2 << 40, "7P": 7 << 50, "1GB": 1 << 30,
	} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("parseSize(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "K", "-1", "1X", "1KK", "1.5G", "9000P", "9223372036854775808",
		"one", "1 M", "iB"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("parseSize(%q) = %d", text, got)
		}
	}
}

func TestSizesAreNeverNegative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.StringMatching(`[0-9]{1,22}[KMGTP]?i?B?`)).Draw(t, "s")
		if n, err := parseSize(s); err == nil && n < 0 {
			t.Fatalf("parseSize(%q) = %d", s, n)
		}
	})
}

func TestParseExport(t *testing.T) {
	for text, want := range map[string]exportSpec{
		"name=a,mem=1M": {name: "a", source: "mem", mem: 1 << 20},
		"name=,file=/d": {source: "file", disk: onDisk("/d")},
		"file=/d,name=b,ro": {name: "b", source: "file", readOnly: true,
			disk: diskexport.Spec{Paths: []string{"/d"}, ReadOnly: true}},
		"name=c,volume=v,ro": {name: "c", source: "volume", volume: "v", readOnly: true},
		"name=g,volume=v,mode=cached-writes": {name: "g", source: "volume", volume: "v",
			mode: "cached-writes", how: client.How{Mode: client.DirectReads}},
		"name=d,file=/a,,b=c":     {name: "d", source: "file", disk: onDisk("/a,b=c")},
		"name=e,file=/x,,,name=f": {name: "f", source: "file", disk: onDisk("/x,")},
		"name=h,disk=/d,mode=direct,streams=single": {name: "h", source: "disk", mode: "direct",
			disk: diskexport.Spec{Paths: []string{"/d"}, Mode: diskexport.Direct,
				Streams: relay.Single}},
		"name=i,members=/a:/b::c,init=64K": {name: "i", source: "members",
			disk: diskexport.Spec{Paths: []string{"/a", "/b:c"}, Init: 64 << 10}},
		"name=j,members=/a:/b,unit=1M,mode=cached": {name: "j", source: "members", mode: "cached",
			disk: diskexport.Spec{Paths: []string{"/a", "/b"}, Unit: 1 << 20,
				Mode: diskexport.Cached}},
	} {
		want.text = text
		if got, err := parseExport(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("parseExport(%q) = %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "name=a", "x=y", "name=a,mem=1,volume=v", "file=", "mem=x",
		"name=a,mem=1M,mode=direct", "volume=v,mode=x", "mem=1M,ro=1", "mem=1M,rw", "mem",
		"file=/d,mode=fast", "file=/d,unit=4K", "file=/d,init=4K", "members=/a", "mem=1M,unit=4K",
		"members=/a:/b,unit=4K,init=4K", "members=/a:/b,init=4K,ro", "file=/d,streams=single",
		"file=/d,mode=direct,streams=both", "file=/d,disk=/e"} {
		if got, err := parseExport(text); err == nil {
			t.Errorf("parseExport(%q) = %+v", text, got)
		}
	}
}

func onDisk(path string) diskexport.Spec { return diskexport.Spec{Paths: []string{path}} }

func TestSplitCommasIsUndoneByDoubling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.StringMatching(`[a-z][a-z,]{0,4}[a-z]`), 1, 4).Draw(t, "parts")
		var written []string
		for _, p := range parts {
			written = append(written, strings.ReplaceAll(p, ",", ",,"))
		}
		if got := splitCommas(strings.Join(written, ",")); !slices.Equal(got, parts) {
			t.Fatalf("%q became %q", parts, got)
		}
	})
}

func TestPathsOnClusters(t *testing.T) {
	t.Setenv("SLUICE_URL", "sluice://127.0.0.1:7/")
	var f urlFlag
	for text, want := range map[string]remotePath{
		"/":                      {"sluice://127.0.0.1:7", "/"},
		"/a/b":                   {"sluice://127.0.0.1:7", "/a/b"},
		"sluice:/a":              {"sluice://127.0.0.1:7", "/a"},
		"sluice:///a":            {"sluice://127.0.0.1:7", "/a"},
		"sluice://127.0.0.1:8":   {"sluice://127.0.0.1:8", "/"},
		"sluice://127.0.0.1:8/a": {"sluice://127.0.0.1:8", "/a"},
	} {
		if got, err := f.parse(text); err != nil || got != want {
			t.Errorf("parse(%q) = %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"a", "", "sluice:a"} {
		if got, err := f.parse(text); err == nil {
			t.Errorf("parse(%q) = %+v", text, got)
		}
	}
	f.url = "sluice://127.0.0.1:6"
	if got := f.base(); got != "sluice://127.0.0.1:6" {
		t.Errorf("the flag does not win: %s", got)
	}
	f.url = ""
	t.Setenv("SLUICE_URL", "")
	if got := f.base(); got != "sluice://127.0.0.1:9400" {
		t.Errorf("default %s", got)
	}
}

func TestOnlyLoopback(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "127.1.2.3:9400", "[::1]:1", "localhost:80"} {
		if err := checkLoopback(addr); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for _, addr := range []string{"", ":1", "0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example.org:1",
		"127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999", "[::ffff:10.0.0.1]:1"} {
		if err := checkLoopback(addr); err == nil {
			t.Errorf("%s is taken for loopback", addr)
		}
	}
}

func TestWithoutDetach(t *testing.T) {
	got := withoutDetach([]string{"up", "-d", "--dir", "c", "--detach", "--mem"})
	if want := []string{"up", "--dir", "c", "--mem"}; !slices.Equal(got, want) {
		t.Fatalf("%q", got)
	}
}

// TestEveryKindHasAdvice goes through the kinds that can reach a user.
func TestEveryKindHasAdvice(t *testing.T) {
	for _, kind := range []errs.Kind{errs.NotFound, errs.Exists, errs.NotDir, errs.IsDir,
		errs.NotEmpty, errs.Access, errs.Perm, errs.Invalid, errs.NoSpace, errs.IO, errs.Corrupt,
		errs.Busy, errs.TimedOut, errs.Disconnected, errs.Shutdown, errs.Protocol, errs.Version,
		errs.Forged, errs.Canceled, errs.NameTooLong, errs.TooBig, errs.ReadOnly, errs.Unsupported,
		errs.Loop, errs.NoMemory, errs.Stale, errs.Fenced, errs.Again} {
		err := fmt.Errorf("outer: %w", errs.New(kind, "op", "object", nil))
		if text := explain(err); !strings.Contains(text, "\n  ") {
			t.Errorf("no advice for %v: %q", kind, text)
		}
	}
	own := hint(errs.New(errs.NotFound, "op", "x", nil), "do %s", "this")
	if text := explain(own); !strings.HasSuffix(text, "\n  do this") {
		t.Errorf("own advice lost: %q", text)
	}
	if !errors.Is(own, errs.NotFound) || hint(nil, "x") != nil {
		t.Error("advice changes what an error is")
	}
}
