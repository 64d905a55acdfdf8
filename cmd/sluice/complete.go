package main

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/meta"
)

const (
	// completeWait bounds a completion: somebody has pressed a key and waits for it.
	completeWait = 2 * time.Second

	// completeMax is how many names are offered at most; more are of no use to anybody.
	completeMax = 1000
)

// completer completes arguments; see cobra.
type completer = func(cmd *cobra.Command, args []string, word string) (
	[]cobra.Completion, cobra.ShellCompDirective)

// completePaths completes paths on the cluster: /a/b, sluice:/a/b and sluice://HOST:PORT/a/b.
// Whatever goes wrong there are no completions, and no complaints.
func completePaths(f *urlFlag) completer {
	return func(cmd *cobra.Command, _ []string, word string) (
		[]cobra.Completion, cobra.ShellCompDirective) {
		if word == "" {
			word = "/"
		}
		return f.paths(cmd.Context(), word, false)
	}
}

// completeDirs is completePaths that offers directories only.
func completeDirs(f *urlFlag) completer {
	return func(cmd *cobra.Command, _ []string, word string) (
		[]cobra.Completion, cobra.ShellCompDirective) {
		if word == "" {
			word = "/"
		}
		return f.paths(cmd.Context(), word, true)
	}
}

// completeBoth completes the arguments of cp: what begins with sluice: is on the cluster; what
// begins with a slash may be there, or on this host if nothing there fits; anything else is on this
// host, and the shell knows that better.
func completeBoth(f *urlFlag) completer {
	return func(cmd *cobra.Command, _ []string, word string) (
		[]cobra.Completion, cobra.ShellCompDirective) {
		if !strings.HasPrefix(word, scheme) && !strings.HasPrefix(word, "/") {
			return nil, cobra.ShellCompDirectiveDefault
		}
		found, directive := f.paths(cmd.Context(), word, false)
		if len(found) == 0 && !strings.HasPrefix(word, scheme) {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return found, directive
	}
}

// paths are the paths on a cluster that begin with word. A directory ends in a slash, and the
// shell puts no space behind it, so that one can go on.
func (f *urlFlag) paths(ctx context.Context, word string, dirs bool) (
	[]cobra.Completion, cobra.ShellCompDirective) {
	none := cobra.ShellCompDirectiveNoFileComp
	if strings.HasPrefix(scheme+"/", word) && word != "/" {
		return []cobra.Completion{scheme + "/"}, none | cobra.ShellCompDirectiveNoSpace
	}
	p, err := f.parse(word)
	if err != nil {
		return nil, none
	}
	before, begin := path.Split(p.path) // of the path; word ends alike
	ctx, cancel := context.WithTimeout(ctx, completeWait)
	defer cancel()
	found := []cobra.Completion{}
	space := cobra.ShellCompDirective(0)
	err = f.quietly(ctx, word, func(fs *client.FS) error {
		return fs.ReadDir(ctx, before, func(e meta.Entry) error {
			if !strings.HasPrefix(e.Name, begin) || dirs && e.Type != meta.Directory ||
				len(found) >= completeMax || begin == "" && strings.HasPrefix(e.Name, ".") {
				return nil
			}
			c := strings.TrimSuffix(word, begin) + e.Name
			if e.Type == meta.Directory {
				c, space = c+"/", cobra.ShellCompDirectiveNoSpace
			}
			found = append(found, c)
			return nil
		})
	})
	if err != nil {
		return nil, none
	}
	slices.Sort(found)
	return found, none | space
}

// quietly is withPath for completions.
func (f *urlFlag) quietly(ctx context.Context, word string, fn func(fs *client.FS) error) error {
	return f.withPath(ctx, word, func(fs *client.FS, _ string) error { return fn(fs) })
}

// completeVolumes completes names of volumes.
func completeVolumes(f *urlFlag) completer {
	return func(cmd *cobra.Command, args []string, word string) (
		[]cobra.Completion, cobra.ShellCompDirective) {
		return f.volumes(cmd.Context(), word), cobra.ShellCompDirectiveNoFileComp
	}
}

// volumes are the names of volumes that begin with word.
func (f *urlFlag) volumes(ctx context.Context, word string) []cobra.Completion {
	ctx, cancel := context.WithTimeout(ctx, completeWait)
	defer cancel()
	var found []cobra.Completion
	err := f.quietly(ctx, "/", func(fs *client.FS) error {
		list, err := fs.ListVolumes(ctx)
		for _, v := range list {
			if strings.HasPrefix(v.Name, word) && len(found) < completeMax {
				found = append(found, v.Name)
			}
		}
		return err
	})
	if err != nil {
		return nil
	}
	return found
}

// completeFolders leaves it to the shell to find folders of this host.
func completeFolders(*cobra.Command, []string, string) (
	[]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// completeExport completes the keys of an export, and names of volumes behind volume=.
func completeExport(f *urlFlag) completer {
	return func(cmd *cobra.Command, _ []string, word string) (
		[]cobra.Completion, cobra.ShellCompDirective) {
		none := cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		before, last := "", word
		if i := strings.LastIndexByte(word, ','); i >= 0 {
			before, last = word[:i+1], word[i+1:]
		}
		if begin, ok := strings.CutPrefix(last, "volume="); ok {
			found := f.volumes(cmd.Context(), begin)
			for i := range found {
				found[i] = before + "volume=" + found[i]
			}
			return found, none
		}
		var found []cobra.Completion
		for _, k := range exportKeys() {
			key := k.name + "="
			if k.alone {
				key = k.name
			}
			if strings.HasPrefix(key, last) && !strings.Contains(","+before, ","+key) {
				found = append(found, before+key)
			}
		}
		return found, none
	}
}

// completeHints completes hints, then a path.
func completeHints(f *urlFlag) completer {
	return func(cmd *cobra.Command, args []string, word string) (
		[]cobra.Completion, cobra.ShellCompDirective) {
		if strings.HasPrefix(word, "/") || strings.HasPrefix(word, scheme) {
			return completePaths(f)(cmd, args, word)
		}
		var found []cobra.Completion
		for _, name := range client.HintNames() {
			found = append(found, strings.TrimPrefix(name, client.HintPrefix)+"=")
		}
		return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// completeFirst completes the first argument only.
func completeFirst(fn completer) completer {
	return func(cmd *cobra.Command, args []string, word string) (
		[]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return fn(cmd, args, word)
	}
}
