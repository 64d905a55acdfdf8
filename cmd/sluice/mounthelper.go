package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mount(8) mounts what it does not know itself by a program: for `mount -t sluice` that is
// mount.sluice, which it looks for in /sbin. This binary is it when it is called by that name:
//
//	mount.sluice HOST:PORT[/PATH] DIR [-sfnv] [-o LIST] [-t TYPE] [-N NAMESPACE]

// helperNames are those by which mount(8) calls.
var helperNames = map[string]bool{"mount.sluice": true, "mount.fuse.sluice": true}

// Exit codes of mount(8).
const (
	mountUsage  = 1
	mountFailed = 32
)

// isHelper tells whether a program was called by mount(8). What it starts in the background has the
// command line of `sluice mount`.
func isHelper(argv0 string) bool { return helperNames[filepath.Base(argv0)] && !isDetached() }

// runHelper is run for mount(8).
func runHelper(args []string, in io.Reader, out, problems io.Writer) int {
	args, fake, verbose, err := helperArgs(args)
	if err != nil {
		fmt.Fprintln(problems, "mount.sluice: "+explain(err))
		return mountUsage
	}
	if verbose {
		fmt.Fprintln(out, "mount.sluice: sluice "+strings.Join(args, " "))
	}
	if fake {
		args = append(args, "--check-options")
	}
	if !slices.ContainsFunc(args, isRemount) && os.Geteuid() == 0 {
		args = slices.Insert(args, 1, "-o", helperDefaults)
	}
	os.Args = append([]string{"sluice"}, args...) // that is what goes on in the background
	said := io.Discard
	if verbose {
		said = out
	}
	if run(args, in, said, problems) != 0 {
		return mountFailed
	}
	return 0
}

// helperDefaults hold unless mount(8) says nosuid or nodev: it does not pass suid and dev on, which
// are its own defaults.
const helperDefaults = "suid,dev"

func isRemount(arg string) bool { return slices.Contains(strings.Split(arg, ","), "remount") }

// helperArgs turns what mount(8) says into a command line of `sluice mount`.
func helperArgs(args []string) (mine []string, fake, verbose bool, err error) {
	mine = []string{"mount", "-d"}
	var places []string
	for i := 0; i < len(args); i++ {
		a := args[i]
		if !strings.HasPrefix(a, "-") || a == "-" {
			places = append(places, a)
			continue
		}
		for j, c := range a[1:] {
			valued := false
			switch c {
			case 's':
				mine = append(mine, "--sloppy")
			case 'f':
				fake = true
			case 'v':
				verbose = true
			case 'n': // there is no table of mounts to be written
			case 'r', 'w':
				mine = append(mine, "-o", map[rune]string{'r': "ro", 'w': "rw"}[c])
			case 'o', 't', 'N':
				valued = true
			default:
				return nil, false, false, helperUsage("unknown flag " + a)
			}
			if !valued {
				continue
			}
			value := a[j+2:]
			if value == "" && i+1 < len(args) {
				i++
				value = args[i]
			}
			if c == 'o' && value != "" {
				mine = append(mine, "-o", value)
			}
			break
		}
	}
	if len(places) != 2 {
		return nil, false, false, helperUsage(fmt.Sprintf("%d arguments, not two", len(places)))
	}
	return append(mine, "--source", places[0], specURL(places[0]), places[1]), fake, verbose, nil
}

func helperUsage(what string) error {
	return refuse(what, "Use it as: mount -t sluice HOST:PORT[/PATH] DIR [-o OPTIONS]   "+
		"or a line of /etc/fstab: HOST:PORT/ DIR sluice _netdev,nofail 0 0")
}

// specURL is the address of what mount(8) calls the device.
func specURL(spec string) string {
	if strings.HasPrefix(spec, scheme+"//") {
		return spec
	}
	return scheme + "//" + spec
}
