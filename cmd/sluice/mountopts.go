package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-storage/sluice/mount"
)

// Options of mount(8) and fstab(5): a list with commas. Those that all file systems have go to the
// kernel; those that are meant for mount(8), systemd and the like mean nothing here; every other
// one is a flag of `sluice mount`, written with underscores or dashes.

// forOthers are options that are read by those who call us.
var forOthers = map[string]bool{
	"defaults": true, "auto": true, "noauto": true, "nofail": true, "_netdev": true,
	"user": true, "nouser": true, "users": true, "owner": true, "group": true, "comment": true,
	"uhelper": true, "helper": true, "loop": true,
}

// ofKernel are what the kernel says of a FUSE mount: mount(8) gives them back to who remounts.
var ofKernel = map[string]bool{
	"user_id": true, "group_id": true, "default_permissions": true, "max_read": true, "fd": true,
	"rootmode": true, "subtype": true, "blksize": true, "source": true,
}

// accessTimes are flags that the kernel leaves to FUSE file systems, as the command knows them.
var accessTimes = map[string]string{
	"noatime": "none", "relatime": "relatime", "strictatime": "strict",
}

// otherNames are options that people know from other file systems.
var otherNames = map[string]string{
	"noacl": "no-acl", "nolock": "local-locks", "local_lock": "local-locks",
}

// optionList is a value of -o; it may be given several times.
type optionList struct {
	all     []string
	flags   []string // for the kernel
	remount bool
	sloppy  bool                     // unknown ones are ignored
	served  func() map[string]string // how what is mounted was mounted: flags and their values
}

func (l *optionList) String() string { return strings.Join(l.all, ",") }
func (l *optionList) Type() string   { return "LIST" }

// Set implements pflag.Value. A comma within quotes is part of an option.
func (l *optionList) Set(text string) error {
	quoted := false
	l.all = append(l.all, strings.FieldsFunc(text, func(r rune) bool {
		quoted = quoted != (r == '"')
		return r == ',' && !quoted
	})...)
	return nil
}

// apply carries the options out: later ones win.
func (l *optionList) apply(cmd *cobra.Command) error {
	kept := map[string]*pflag.Flag{} // by the options' names
	for _, o := range l.all {
		name, value, valued := strings.Cut(o, "=")
		switch {
		case mount.IsFlag(o):
			l.flags = append(l.flags, o)
			if how, f := accessTimes[o], cmd.Flags().Lookup("atime"); how != "" && f != nil {
				if err := f.Value.Set(how); err != nil {
					return err
				}
			}
		case name == "remount":
			l.remount = true
		case forOthers[name] || ofKernel[name] || strings.HasPrefix(strings.ToLower(name), "x-"):
		default:
			f := optionFlag(cmd, name)
			switch {
			case f == nil && l.sloppy:
				continue
			case f == nil:
				return unknownOption(cmd, o)
			case !valued && f.NoOptDefVal == "":
				return refuse("the option "+name+" needs a value", "Write "+name+"="+
					strings.ToUpper(f.Value.Type()))
			case !valued:
				value = f.NoOptDefVal
			}
			if err := cmd.Flags().Set(f.Name, strings.Trim(value, `"`)); err != nil {
				return refuse(fmt.Sprintf("the option %s: %v", o, err), "See: sluice mount --help")
			}
			if name != "allow_other" { // which the kernel says, too
				kept[name] = f
			}
		}
	}
	if l.remount {
		l.warnOfKept(cmd, kept)
	}
	return nil
}

// warnOfKept names the options that a remount does not change. mount(8) repeats those of fstab:
// what is as it was is not worth a word.
func (l *optionList) warnOfKept(cmd *cobra.Command, kept map[string]*pflag.Flag) {
	var served map[string]string
	if l.served != nil && len(kept) > 0 {
		served = l.served()
	}
	maps.DeleteFunc(kept, func(_ string, f *pflag.Flag) bool {
		value, known := served[f.Name]
		return known && value == f.Value.String()
	})
	if len(kept) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "sluice: these options stay as they are until it is unmounted "+
			"and mounted anew: %s\n", strings.Join(slices.Sorted(maps.Keys(kept)), " "))
	}
}

// addOptions adds -o, and what mount.sluice needs besides.
func (o *mountOptions) addOptions(flags *pflag.FlagSet) {
	flags.BoolVar(&o.noACL, "no-acl", false,
		"no access control lists: the kernel asks for none, and none can be set")
	flags.VarP(&o.options, "options", "o", "options as those of mount(8), a `LIST` with commas")
	flags.StringVar(&o.source, "source", "", "what the list of mounts shows as the device")
	flags.BoolVar(&o.options.sloppy, "sloppy", false, "ignore unknown options of -o")
	flags.BoolVar(&o.check, "check-options", false, "look at the options, and mount nothing")
	for _, name := range []string{"source", "sloppy", "check-options"} {
		_ = flags.MarkHidden(name) // it is there
	}
}

// optionFlag is the flag of the command that an option stands for.
func optionFlag(cmd *cobra.Command, name string) *pflag.Flag {
	if other, ok := otherNames[name]; ok {
		name = other
	}
	f := cmd.Flags().Lookup(strings.ReplaceAll(name, "_", "-"))
	switch {
	case f == nil:
		return nil
	case f.Name == "detach" || f.Name == "foreground" || f.Name == "options" || f.Name == "help":
		return nil
	}
	return f
}

func unknownOption(cmd *cobra.Command, o string) error {
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && optionFlag(cmd, f.Name) != nil {
			known = append(known, strings.ReplaceAll(f.Name, "-", "_"))
		}
	})
	return refuse("there is no option "+o, "There are: "+strings.Join(mount.Flags(), " ")+
		"   and flags of sluice mount: "+strings.Join(known, " "))
}

// remountDir changes what the kernel does with a mount that is there.
func remountDir(dir string, l *optionList) error {
	mounted, err := isMountpoint(dir)
	if err != nil {
		return err
	}
	if !mounted {
		return refuse("nothing is mounted at "+dir, "Mount it first, without remount")
	}
	if os.Geteuid() != 0 {
		return refuse("only root can remount", "Unmount it with: sluice umount "+dir+
			"   and mount it anew")
	}
	if len(l.flags) == 0 {
		return nil
	}
	return mount.Remount(dir, l.flags)
}
