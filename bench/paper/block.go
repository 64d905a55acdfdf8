package paper

const disk = "A file on this host's disk, or in memory, behind sluice nbd serve, read by fio " +
	"over a unix socket. There is no card with memory of its own: the direct path is O_DIRECT " +
	"into memory and from there to the client, which the paper calls gmblock-ram. "

func block() []Experiment {
	return []Experiment{
		{Name: "G3.8", Also: []string{"G3.9"},
			Title: "remote reads by size and requests under way, by path",
			Parts: []Part{{"nbd", []string{"tmpfs-read-(4k|64k|256k)-d(1|4)",
				"disk-read-(64k|256k)-d(1|4)"}, []string{"sluice", "direct"}}},
			Claims: []Claim{
				{"over TCP (GNBD)", "at most 68 MB/s", nil, ""},
				{"through memory", "about 100 MB/s (server B), 198 (server A)", nil, ""},
				{"past memory", "186 MB/s with 1 request, 220 with more: 90 % of the disk", nil, ""},
			}, Differs: disk},
		{Name: "G3.10", Title: "what a local program loses beside a server of blocks",
			Parts:   []Part{{"nbd", []string{"disk-beside"}, []string{"sluice", "cached", "direct"}}},
			Claims:  []Claim{{"bzip2 slowed by", "67 % (through memory), about 0 (past it)", nil, ""}},
			Differs: disk + "A loop that reads memory stands for bzip2."},
		{Name: "G3.11", Title: "remote writes by size",
			Parts: []Part{{"nbd", []string{"disk-write-(64k|256k)-d(1|4)"},
				[]string{"sluice", "cached", "direct"}}},
			Claims:  []Claim{{"through memory", "about 100 MB/s of 160 of the disk", nil, ""}},
			Differs: disk},
		{Name: "G4.3",
			Title: "synchronized sends: one large request whose chunks leave as the disks deliver them",
			Parts: []Part{{"iod", []string{"members-net-(1|4)-d(1|4)"}, nil}},
			Claims: []Claim{
				{"one stream, a fast device, 1 request", "+77 %", nil, ""},
				{"several streams, a RAID set", "92 % of the disks, +40 % over 4 plain requests", nil, ""},
			}, Differs: server + "Members are throttled to the same rate, so that the network " +
				"is not the limit."},
		{Name: "G4.5", Title: "where a request spends its time at the server",
			Parts:   []Part{{"iod", []string{"states-read-(4k|1m)"}, nil}},
			Claims:  []Claim{{"states", "init, read, send-init, send, fin", nil, ""}},
			Differs: server},
		{Name: "G4.4", Title: "when each chunk of a request arrives in memory",
			CannotBe: "The disk writes into memory behind the kernel's back only by DMA to " +
				"memory that a program polls, as on the paper's card; a host's kernel " +
				"tells when a whole read is over."},
		{Name: "G5.4", Also: []string{"G5.5", "G5.6", "G5.7", "G5.8", "G5.9", "G5.10"},
			Title: "OCFS2 on the block device: IOzone, web servers, MPI-Tile-IO, on 1 and 4 nodes",
			CannotBe: "OCFS2 needs several kernels with its modules. They are in the virtual " +
				"machines of docs/ops/vmlab.md, see docs/ops/ocfs2.md; emulated hosts " +
				"give no figures to compare."},
	}
}
