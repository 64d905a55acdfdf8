package main

import (
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-storage/sluice/attach"
	"github.com/sluice-storage/sluice/attach/netlink"
)

const attachText = `Makes a block device of this host's kernel, /dev/nbdN, of a volume of the
cluster, or of an export of a server that speaks NBD: nbd://HOST[:PORT]/EXPORT, or
nbd+unix:///EXPORT?socket=PATH; nbds:// and nbds+unix:// start TLS. It returns when the device can
be used. Without /dev/nbdN the kernel chooses one; /dev/sluice/NAME leads to it either way. What is
attached already is told again, and nothing else happens.

A process in the background serves the device: it reaches the I/O servers as any client does, or
passes requests on to the server, and ends TLS. It is locked in memory. When it is killed another
one, which stands by, goes on with the same device; when I/O servers, the metadata service or the
server are away it waits for them, and replaces the connections. Programs that use the device, and
file systems on it, wait meanwhile and see no error. A volume that is made larger (sluice volume
resize) makes the device larger.

A volume is written through one device or gateway at a time, see: sluice help nbd. With --shared on
all of them several hosts write to it at the same time, for file systems that are made for that.

When the process gets SIGTERM it detaches the device as soon as nobody uses it. --systemd prints the
template of a unit, which attaches a volume when the host starts: see docs/ops/attach.md. It needs
the kernel's module nbd, and the right to administer the host.`

// attachOptions is what `sluice attach` was asked for.
type attachOptions struct {
	url                  urlFlag
	target, node         string
	name, mode           string
	readOnly, shared     bool
	connections, block   int
	resend, giveUp       time.Duration
	request, readAhead   string
	scheduler            string
	tls                  attachTLS
	foreground, standby  bool
	serve, list, systemd bool
	asJSON               bool
	place                string
}

func newAttach() *cobra.Command {
	var o attachOptions
	cmd := &cobra.Command{
		Use:   "attach VOLUME|nbd://HOST[:PORT]/EXPORT [/dev/nbdN]",
		Short: "Make a block device of this host of a volume",
		Long:  attachText,
		Example: "  sluice attach db\n" +
			"  sluice attach db /dev/nbd3 --connections 8\n" +
			"  mkfs.ext4 /dev/sluice/db && mount /dev/sluice/db /mnt\n" +
			"  sluice attach --shared cluster        # on every host of an OCFS2 or GFS2\n" +
			"  sluice attach --read-only --mode direct images\n" +
			"  sluice attach nbds://10.1.0.1/db --tls-credential /etc/sluice/credential.json\n" +
			"  sluice attach --list\n" +
			"  sluice attach --systemd > /etc/systemd/system/sluice-attach@.service",
		Args: func(cmd *cobra.Command, args []string) error {
			if o.list || o.systemd {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.RangeArgs(1, 2)(cmd, args)
		},
		ValidArgsFunction: completeFirst(completeVolumes(&o.url)),
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	o.flags(cmd.Flags())
	o.tls.add(cmd.Flags())
	o.url.add(cmd)
	addJSON(cmd, &o.asJSON, []attachInfo{})
	completeWords(cmd, "mode", modeNames()...)
	return cmd
}

func (o *attachOptions) flags(flags *pflag.FlagSet) {
	flags.StringVar(&o.name, "name", "", "the link's name below /dev/sluice (default that of the "+
		"volume or export)")
	flags.BoolVar(&o.readOnly, "read-only", false, "refuse all changes")
	flags.BoolVar(&o.shared, "shared", false,
		"other hosts that say so too write to the volume at the same time; every write is durable")
	flags.StringVar(&o.mode, "mode", "",
		"the way of a volume's data at the I/O servers: cached, cached-writes, stream or direct "+
			"(default cached)")
	flags.IntVar(&o.connections, "connections", 4, "sockets, each with a queue of 128 requests")
	flags.IntVar(&o.block, "block-size", 0, "bytes of a sector: 512 to 4096 (default 512)")
	flags.StringVar(&o.request, "request-size", "1M", "the largest request that the kernel makes")
	flags.StringVar(&o.readAhead, "read-ahead", "2M", "how far the kernel reads ahead")
	flags.StringVar(&o.scheduler, "scheduler", "none", "the kernel's scheduler for the device")
	flags.DurationVar(&o.resend, "resend", 5*time.Second,
		"when the kernel sends a request again that has no answer")
	flags.DurationVar(&o.giveUp, "give-up", 0,
		"for how long programs wait while no process serves the device (0: for ever)")
	flags.BoolVar(&o.foreground, "foreground", false,
		"serve the device in this process, for supervisors; nobody stands by")
	flags.BoolVar(&o.list, "list", false, "print what is attached")
	flags.BoolVar(&o.systemd, "systemd", false, "print the template of a unit")
	flags.StringVar(&o.place, "state", attach.DefaultPlace, "the `FOLDER` of what is attached")
	flags.BoolVar(&o.serve, "serve", false, "serve in the background")
	flags.BoolVar(&o.standby, "standby", false, "serve when who serves has died")
	for _, name := range []string{"state", "serve", "standby"} {
		_ = flags.MarkHidden(name) // it is there
	}
}

// run does what the command line asks for.
func (o *attachOptions) run(cmd *cobra.Command, args []string) error {
	switch {
	case o.list:
		return listAttached(cmd, attach.Place{Dir: o.place}, o.asJSON)
	case o.systemd:
		return printAttachUnit(cmd)
	}
	o.target = args[0]
	if len(args) > 1 {
		o.node = args[1]
	}
	spec, err := o.spec(cmd)
	if err != nil {
		return err
	}
	switch {
	case o.serve || o.standby:
		return newAttacher(cmd, o, spec).serve(cmd.Context())
	case o.foreground:
		return o.runForeground(cmd, spec)
	}
	return o.front(cmd, spec)
}

// spec is what is asked for, with what it is known by.
func (o *attachOptions) spec(cmd *cobra.Command) (*attach.Spec, error) {
	s := &attach.Spec{Name: o.name, Device: netlink.Any, ReadOnly: o.readOnly, Shared: o.shared}
	if err := o.check(); err != nil {
		return nil, err
	}
	if attach.IsServer(o.target) {
		at, err := attach.ParseServer(o.target)
		if err != nil {
			return nil, hint(err, "Write it like nbd://10.1.0.1:10809/db")
		}
		s.Target = at.String()
		if s.Name == "" {
			s.Name = strings.ReplaceAll(at.Export, "/", "_")
		}
	} else {
		s.Target = o.url.base() + "/" + o.target
		if s.Name == "" {
			s.Name = o.target
		}
	}
	if err := attach.CheckName(s.Name); err != nil {
		return nil, hint(err, "Give it a name for /dev/sluice with --name")
	}
	if o.node != "" {
		index, err := attach.System{}.Index(o.node)
		if err != nil {
			return nil, err
		}
		s.Device = index
	}
	s.Args = o.servingArgs(cmd)
	return s, nil
}

// check refuses what cannot be meant.
func (o *attachOptions) check() error {
	remote := attach.IsServer(o.target)
	switch {
	case strings.Contains(o.target, "://") && !remote:
		return refuse(o.target+" is neither a volume nor an NBD server",
			"Write the name of a volume, or nbd://HOST:PORT/EXPORT; the cluster is --url")
	case remote && (o.shared || o.mode != ""):
		return refuse("--shared and --mode are of volumes", "Say so at the server: sluice help nbd")
	case o.shared && o.readOnly:
		return refuse("what is only read needs no --shared", "Leave one of them out")
	case o.connections < 1 || o.connections > 64:
		return refuse("--connections takes 1 to 64", "4 suit most hosts")
	case o.resend < time.Second || o.giveUp < 0:
		return refuse("--resend takes a second or more, and --give-up is not negative",
			"Write durations like 5s and 10m")
	case !remote && o.tls.given():
		return refuse("TLS keys are for servers: nbds://",
			"A volume is reached as the cluster is, see: --credential")
	}
	if o.mode != "" {
		if _, err := parseMode(o.mode); err != nil {
			return refuse("--mode "+o.mode, "Choose of "+strings.Join(modeNames(), ", "))
		}
	}
	return o.queue(&attach.Queue{})
}

// queue fills in how the kernel is to treat requests.
func (o *attachOptions) queue(q *attach.Queue) (err error) {
	if q.RequestBytes, err = parseSize(o.request); err != nil {
		return err
	}
	if q.RequestBytes < 4<<10 || q.RequestBytes > 32<<20 {
		return refuse("--request-size takes 4K to 32M", "1M suits most")
	}
	q.Scheduler = o.scheduler
	q.ReadAheadBytes, err = parseSize(o.readAhead)
	return err
}

// servingArgs are the arguments of the process that serves: those of this one, as they were read.
func (o *attachOptions) servingArgs(cmd *cobra.Command) []string {
	args := []string{"attach"}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "json", "foreground", "serve", "standby", "list", "systemd":
		default:
			args = append(args, "--"+f.Name+"="+f.Value.String())
		}
	})
	args = append(args, "--", o.target)
	if o.node != "" {
		args = append(args, o.node)
	}
	return args
}

// withServe turns these arguments into those of a process that serves, or stands by.
func withServe(args []string, flag string) []string {
	return append([]string{args[0], flag}, args[1:]...)
}

// needRoot tells who may not attach before anything else fails.
func needRoot() error {
	if os.Geteuid() != 0 {
		return refuse("only root may attach devices", "Try: sudo sluice attach ...")
	}
	return nil
}
