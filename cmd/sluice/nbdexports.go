package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/nbd/diskexport"
	"github.com/sluice-storage/sluice/nbd/filter"
	"github.com/sluice-storage/sluice/nbd/memexport"
	"github.com/sluice-storage/sluice/nbd/volumeexport"
)

// What `sluice nbd` serves: the grammar of --export, which files of exports are turned into as
// well, and how each becomes an entry of the server. Who adds a kind of export adds its key to
// exportKeys, its rules to settle and its Open to opener.

// exportUsage is the grammar in short, for errors.
const exportUsage = "Write name=N,file=PATH[,mode=M][,ro], the same with disk=PATH or " +
	"members=P1:P2.., name=N,mem=SIZE, or name=N,volume=V[,mode=M][,ro|,standby|,shared]; " +
	"see: sluice help nbd"

// exportSpec is one export.
type exportSpec struct {
	text string // as it was written: another text is another export

	name     string
	source   string // the key that says what is served: file, disk, members, mem, volume
	volume   string
	mem      int64
	mode     string // as it was written; empty: the default of the source
	readOnly bool
	standby  bool // of a volume
	shared   bool // likewise

	description string
	allow       []string // names of who may use it; empty: whoever can connect
	tlsOnly     bool
	filters     []filter.Filter

	disk diskexport.Spec // of a file, a disk or members
	how  client.How      // of a volume, by its mode
}

// exportKey is one key of the grammar.
type exportKey struct {
	name   string
	source bool // it says what is served: one of these is given
	alone  bool // it is a word without a value
	empty  bool // its value may be empty
	set    func(s *exportSpec, value string) error
}

// exportKeys are all keys, in the order in which they are offered for completion.
func exportKeys() []exportKey {
	return []exportKey{
		{name: "name", empty: true, set: func(s *exportSpec, v string) error {
			s.name = v
			return nil
		}},
		{name: "file", source: true, set: (*exportSpec).setPath},
		{name: "disk", source: true, set: (*exportSpec).setPath},
		{name: "members", source: true, set: (*exportSpec).setMembers},
		{name: "unit", set: (*exportSpec).setUnit},
		{name: "init", set: (*exportSpec).setInit},
		{name: "streams", set: (*exportSpec).setStreams},
		{name: "mem", source: true, set: func(s *exportSpec, v string) (err error) {
			s.mem, err = parseSize(v)
			return err
		}},
		{name: "volume", source: true, set: func(s *exportSpec, v string) error {
			s.volume = v
			return nil
		}},
		{name: "mode", set: func(s *exportSpec, v string) error {
			s.mode = v
			return nil
		}},
		{name: "standby", alone: true, set: func(s *exportSpec, _ string) error {
			s.standby = true
			return nil
		}},
		{name: "shared", alone: true, set: func(s *exportSpec, _ string) error {
			s.shared = true
			return nil
		}},
		{name: "ro", alone: true, set: func(s *exportSpec, _ string) error {
			s.readOnly = true
			return nil
		}},
		{name: "description", set: func(s *exportSpec, v string) error {
			s.description = v
			return nil
		}},
		{name: "allow", set: func(s *exportSpec, v string) error {
			s.allow = append(s.allow, splitDoubled(v, ":")...)
			return nil
		}},
		{name: "tls", alone: true, set: func(s *exportSpec, _ string) error {
			s.tlsOnly = true
			return nil
		}},
		{name: "filter", set: func(s *exportSpec, v string) error {
			f, err := filter.Parse(v)
			s.filters = append(s.filters, f)
			return err
		}},
	}
}

// parseExport reads key=value pairs. A comma in a value is written twice.
func parseExport(text string) (exportSpec, error) {
	s := exportSpec{text: text}
	err := s.parse(text)
	if err == nil {
		err = s.settle()
	}
	if err != nil {
		return exportSpec{}, refuse(fmt.Sprintf("--export %s: %v", text, err), exportUsage)
	}
	return s, nil
}

func (s *exportSpec) parse(text string) error {
	keys := exportKeys()
	for _, part := range splitCommas(text) {
		word, value, given := strings.Cut(part, "=")
		key := findExportKey(keys, word)
		switch {
		case key == nil && !given:
			return fmt.Errorf("%q is not key=value", part)
		case key == nil:
			return fmt.Errorf("there is no %q", word)
		case key.alone == given, value == "" && !key.empty && !key.alone:
			return fmt.Errorf("%q is not key=value", part)
		case key.source && s.source != "":
			return fmt.Errorf("%s and %s: give one of %s", s.source, word, sourceNames(keys))
		case key.source:
			s.source = word
		}
		if err := key.set(s, value); err != nil {
			return err
		}
	}
	if s.source == "" {
		return fmt.Errorf("give one of %s", sourceNames(keys))
	}
	return nil
}

func findExportKey(keys []exportKey, word string) *exportKey {
	for i := range keys {
		if keys[i].name == word {
			return &keys[i]
		}
	}
	return nil
}

func sourceNames(keys []exportKey) string {
	var names []string
	for _, k := range keys {
		if k.source {
			names = append(names, k.name)
		}
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// settle checks what keys mean together, when all of them are known.
func (s *exportSpec) settle() (err error) {
	if s.onDisk() {
		if s.standby || s.shared {
			return fmt.Errorf("only volumes are on standby or shared")
		}
		return s.settleDisk()
	}
	switch {
	case s.disk.Unit != 0 || s.disk.Init != 0 || s.disk.Streams != 0:
		return fmt.Errorf("unit, init and streams are of files, disks and members")
	case (s.standby || s.shared) && s.source != "volume":
		return fmt.Errorf("only volumes are on standby or shared")
	case (s.standby || s.shared) && s.readOnly:
		return fmt.Errorf("what is only read needs neither standby nor shared")
	case s.standby && s.shared:
		return fmt.Errorf("who shares a volume needs no standby")
	}
	switch {
	case s.mode == "":
	case s.source == "volume":
		if s.how, err = parseMode(s.mode); err != nil {
			return fmt.Errorf("%w; choose of %s", err, strings.Join(modeNames(), ", "))
		}
	default:
		return fmt.Errorf("memory has no modes")
	}
	return nil
}

// splitCommas cuts at single commas; two in a row are one that belongs to the text.
func splitCommas(text string) []string { return splitDoubled(text, ",") }

// splitDoubled cuts at a character that is written twice where it belongs to the text.
func splitDoubled(text, at string) []string {
	const mark = "\x00"
	parts := strings.Split(strings.ReplaceAll(text, at+at, mark), at)
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], mark, at)
	}
	return parts
}

// backends are what exports stand on. fs is there when a volume was asked for.
type backends struct {
	fs    *client.FS
	disks *diskexport.Host
}

// entry makes the server's entry.
func (s exportSpec) entry(b backends, log *slog.Logger) nbd.Entry {
	open := s.opener(b)
	return nbd.Entry{Name: s.name, Key: s.text, Description: s.description, ReadOnly: s.readOnly,
		Keep: s.keeps(), Allow: s.allow, TLSOnly: s.tlsOnly, Contexts: s.contexts(),
		Open: func(ctx context.Context) (nbd.Export, error) {
			exp, err := open(ctx)
			if err != nil {
				return nil, err
			}
			return filter.Stack(exp, s.filters, filter.Options{Name: s.name, Logger: log})
		}}
}

// contexts are the metadata contexts that exports of the source have.
func (s exportSpec) contexts() []string {
	switch s.source {
	case "file", "disk", "members":
		return []string{diskexport.CachedContext}
	case "volume":
		return []string{volumeexport.PlacementContext}
	}
	return nil
}

// keeps tells whether the export stays open without connections: memory would lose its content, a
// cache too, and a volume that is written to belongs to this gateway from its start to its end.
func (s exportSpec) keeps() bool {
	return s.source == "mem" || s.onDisk() && s.disk.Mode == diskexport.Cached ||
		s.source == "volume" && !s.readOnly
}

// opener is how the export is opened, by its source.
func (s exportSpec) opener(b backends) func(context.Context) (nbd.Export, error) {
	switch s.source {
	case "file", "disk", "members":
		return func(ctx context.Context) (nbd.Export, error) { return openDisk(ctx, b.disks, s.disk) }
	case "volume":
		return func(ctx context.Context) (nbd.Export, error) {
			return volumeexport.OpenWith(ctx, b.fs, s.volume, volumeexport.Options{
				ReadOnly: s.readOnly, How: s.how, Standby: s.standby, Shared: s.shared,
				Logger: newLogger()})
		}
	}
	return func(context.Context) (nbd.Export, error) { return memexport.New(s.mem) }
}
