package main

import (
	"time"

	"github.com/spf13/cobra"
)

const nbdText = `Serves block devices by the NBD protocol until it is interrupted. Each --export is
one of

  name=N,file=PATH[,mode=M][,ro]
  name=N,disk=PATH[,mode=M][,ro]
                           a file or a block device of this host
  name=N,members=P1:P2:..[,init=UNIT|,unit=UNIT][,mode=M][,ro]
                           several of them, striped: the set says who belongs to it and in which
                           order. init=64K makes it, of blank members; with unit=64K there are only
                           data on them, and nobody can tell whether they are the right ones
  name=N,mem=SIZE          memory, empty at the start, gone at the end
  name=N,volume=V[,ro][,mode=M][,standby][,shared]
                           a volume of the cluster, see: sluice volume create; M is cached (the
                           default), cached-writes (reads past the servers' caches), or direct

and may go on with

  ,description=TEXT        what clients are told of it
  ,allow=NAME1:NAME2       who may use it, by the names in certificates; needs TLS
  ,tls                     only through TLS, where --tls selective leaves that to clients
  ,filter=F[:KEY=VALUE]... what requests pass on their way, the first one first:
                           readonly; throttle:rate=BYTES:ops=N (a second); delay:read=10ms:...;
                           fault:rate=0.01:error=EIO:op=read+write:from=OFF:to=OFF:seed=N;
                           log[:file=PATH]; checkwrite (compares instead of writing)

A comma in a value is written twice, and a colon in a list.

Modes of files, disks and members; one of them may be exported in several at once:
  page           through the kernel's page cache, coherent with other programs of this host (the
                 default)
  direct         past all caches; large reads leave in pieces as the members deliver them. (streams=
                 single: one member at a time; plain: all of it is read before the first is sent)
  cached         through a cache of this process, --cache in size; nobody else may write meanwhile
  cached-writes  writes as cached, reads as direct

Where it listens. --listen is HOST:PORT or unix:PATH, and can be given more than once. Sockets that
systemd has opened (LISTEN_FDS) are served instead; so nbdcopy -- [ sluice nbd --export ... ] works.
--stdio serves one client on standard input; --run COMMAND serves a private socket while a command
runs, which finds it in $uri and $unixsocket; --one-shot ends when the last client has left.

Who may connect. A socket, unix:PATH, can be used by you and root alone, HOST:PORT on loopback by
every user of this host. Addresses that other hosts reach need clients that prove who they are:
--tls-cert, --tls-key and --tls-ca are PEM files, of this server and of the authority that signs
clients; --tls-credential is the credential of a host of the cluster, and lets its members in.
--insecure serves everybody who can reach the address. See docs/ops/nbd.md.

With --config the exports, and what no flag says, come from the table [[nbd]] of a sluice.toml.
SIGHUP reads it again, and the files of keys: exports that are new are served, those that are gone
or changed are drained; connections to the others go on.

A request to a volume waits for servers that are away or do not answer, as long as it takes: the
guest sees a slow disk. With --timeout it waits that long and then fails with EIO.

A volume is written through one gateway at a time, so that a flush covers every write. A gateway
has its volumes from its start to its end, or until it is asked for them (sluice volume handover);
a second one is refused, unless it says ro, or standby: then it serves reads, and asks for the
volume with its first write. After a gateway was killed another one of the same host takes over at
once, one of another host when the session of the first has ended, within 30 s. I/O servers refuse
what an earlier gateway still sends. With shared on all of them several gateways write at the same
time, for file systems that are made for that; every write is durable then.

Attach one with, for example:
  qemu-img info nbd://127.0.0.1:10809/N
  nbdinfo nbd://127.0.0.1:10809/N`

// nbdOptions is what `sluice nbd` was asked for.
type nbdOptions struct {
	url     urlFlag
	listen  []string
	exports []string
	timeout time.Duration

	config, gateway string // the file and the name of its table; empty: none
	tls             tlsOptions
	stdio, oneShot  bool
	replace         bool   // a server that has the socket
	handed          bool   // somebody else has opened the sockets
	fileListens     bool   // it is the file that says where
	run             string // a command; empty: none

	cache string // a size: memory of disks that are cached or direct

	web               adminFlag
	webFile, addrFile string // that the addresses are written to; may be empty
}

func newNBD() *cobra.Command {
	var o nbdOptions
	cmd := &cobra.Command{
		Use:   "nbd --listen HOST:PORT|unix:PATH --export name=N,file=PATH[,mode=M][,ro] ...",
		Short: "Serve files, disks, memory and volumes as block devices",
		Long:  nbdText,
		Example: "  sluice nbd --listen 127.0.0.1:10809 --export name=scratch,mem=1G\n" +
			"  sluice nbd --listen unix:/run/sluice.sock --export name=db,volume=db\n" +
			"  sluice nbd --listen 10.1.0.1:10809 --tls-cert s.pem --tls-key k.pem --tls-ca ca.pem \\\n" +
			"      --export name=db,volume=db,allow=alice:bob\n" +
			"  sluice nbd --export name=r,members=/dev/sdb:/dev/sdc,init=64K,mode=direct\n" +
			"  sluice nbd --export name=a,file=disk.img --export name=b,file=disk.img,mode=direct\n" +
			"  sluice nbd --config /etc/sluice/sluice.toml --gateway nbd1\n" +
			"  sluice nbd --export name=,file=disk.img --run 'qemu-img convert $uri -O qcow2 d.qcow2'\n" +
			"  nbdcopy -- [ sluice nbd --export name=,file=disk.img,ro ] copy.img",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.serve(cmd) },
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&o.listen, "listen", nil, "HOST:PORT or unix:PATH; repeat it for more "+
		"(default "+defaultNBD+")")
	flags.StringArrayVar(&o.exports, "export", nil, "what to serve; repeat it for more")
	flags.StringVar(&o.config, "config", "", "serve what this sluice.toml says: `FILE`")
	flags.StringVar(&o.gateway, "gateway", "",
		"which [[nbd]] of it, by its `NAME` (default the only one)")
	flags.DurationVar(&o.timeout, "timeout", 0,
		"how long a request to a volume waits for servers before it fails (0: for ever)")
	flags.StringVar(&o.cache, "cache", "256M",
		"memory of files, disks and members that are cached or direct")
	flags.BoolVar(&o.stdio, "stdio", false, "serve one client on standard input, which is a socket")
	flags.BoolVar(&o.oneShot, "one-shot", false, "end when the last client has left")
	flags.BoolVar(&o.replace, "replace", false,
		"take unix:PATH from a server that listens there: it keeps its clients, and gets no new ones")
	flags.StringVar(&o.run, "run", "", "serve while this shell `COMMAND` runs, and end as it does")
	flags.StringVar(&o.addrFile, "addr-file", "", "write the address into this `FILE`")
	flags.StringVar(&o.webFile, "admin-file", "", "write the admin address into this `FILE`")
	_ = flags.MarkHidden("addr-file") // it is there
	_ = flags.MarkHidden("admin-file")
	o.tls.add(cmd)
	o.web.add(cmd, adminOff)
	o.web.addClients(cmd)
	o.url.add(cmd)
	completeFlag(cmd, "export", completeExport(&o.url))
	completeWords(cmd, "tls", tlsOff, tlsSelective, tlsRequired)
	return cmd
}

// check refuses what cannot be meant together.
func (o *nbdOptions) check() error {
	ways := 0
	for _, given := range []bool{o.stdio, o.run != "", len(o.listen) > 0} {
		if given {
			ways++
		}
	}
	switch {
	case o.timeout < 0:
		return refuse("--timeout is negative", "Write a duration like 90s, or 0 to wait for ever")
	case ways > 1:
		return refuse("--listen, --stdio and --run exclude each other", "Choose one of them")
	case o.gateway != "" && o.config == "":
		return refuse("--gateway without a file", "Name the file with --config")
	case o.config != "" && len(o.exports) > 0:
		return refuse("--export and --config exclude each other",
			"Write [[nbd.export]] into the file, or leave it out")
	case o.config == "" && len(o.exports) == 0:
		return refuse("nothing to serve", "Add at least one --export, see: sluice help nbd")
	}
	return nil
}
