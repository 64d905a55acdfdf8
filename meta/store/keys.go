package store

import (
	"encoding/binary"

	"github.com/sluice-storage/sluice/meta"
)

// The keys, by their first byte. Numbers are big-endian, so that a scan runs in numeric order.
//
//	'A' what                     one of a kind: see the constants below
//	'B' name                     volume
//	'C' dir:8 cookie:8           the directory in reading order
//	'D' dir:8 name               the directory by name
//	'F' ino:8                    data of a small file
//	'G' ino:8                    tree that is being removed: its top directory, without a name
//	'H' what:1 ...               registry of identities: see below
//	'I' ino:8                    inode
//	'K' quota:8 what:1           counters of what a quota's inodes take: 'b' bytes, 'i' inodes
//	'K' quota:8 'd' dir:8        a directory of a quota whose entries are not counted yet
//	'M' quota:8                  quota: its directory and limits
//	'N' dir:8                    counter: |sub-directories 32 bits|entries 32 bits|
//	'O' name                     host, as it was heard of
//	'P' id:4                     I/O server
//	'Q' ino:8                    deletion queue: inodes whose stripe objects or xattrs must go
//	'S' session:8                session
//	'T' dir:8                    times of a directory
//	'U' ino:8                    orphan: no name left, but open
//	'V' server:4 ino:8 stripe:4  objects that are to be removed at a server when it is there
//	'W' name                     pool of I/O servers
//	'X' ino:8 name               extended attribute
//	'Y' ino:8                    counter: |bytes of attribute values 40 bits|of names 24 bits|
//	'Z' ino:8                    truncation that is not yet carried out at the I/O servers
//
// The registry (registry.go, tokens.go, members.go, serverkeys.go, banish.go):
//
//	'H' 't' id:8                 token
//	'H' 'u' token:8 key:32       use of a token by who has a key: the name that was joined under
//	'H' 'h' name                 host
//	'H' 'c' name                 client
//	'H' 'd' serial:16            certificate that is refused
//	'H' 'g' what:1               generation of a key of the cluster
//	'H' 'i' id:4                 I/O server: the host that it belongs to
//	'H' 'm'                      the least generation that the secret should have
//
// Operations in one directory do not conflict with each other: they check the version of 'I' dir,
// which they do not write, add to 'N' dir, which commutes, and put 'T' dir without looking at it.
//
// Snapshots of trees have room: 'E' and 'J' are kept for them. An inode says which tree it belongs
// to (inode.Quota), and a snapshot would be one of such a tree. 'J' tree:8 number:8 would name it.
// The first commit behind it that writes an inode, entry or attribute of the tree would put the
// record as it was to 'E' number:8 and then the record's own key. To read a snapshot is to look
// there first, and then at the record itself. No key above would change its form, and what is in no
// tree would cost nothing.
//
// No operation reads more keys because a client has named or written more of something. Open files
// and leases are not stored: see handles.go.
const (
	kindVolume  = 'B'
	kindCookie  = 'C'
	kindEntry   = 'D'
	kindTree    = 'G'
	kindInode   = 'I'
	kindSmall   = 'F'
	kindUsage   = 'K'
	kindQuota   = 'M'
	kindCount   = 'N'
	kindHost    = 'O'
	kindServer  = 'P'
	kindRemoval = 'Q'
	kindSession = 'S'
	kindTimes   = 'T'
	kindOrphan  = 'U'
	kindBacklog = 'V'
	kindPool    = 'W'
	kindXattr   = 'X'
	kindXattrs  = 'Y'
	kindPending = 'Z'

	kindRegistry = 'H'
)

// What 'H' keeps.
const (
	registryToken      = 't'
	registryUse        = 'u'
	registryHost       = 'h'
	registryClient     = 'c'
	registryDenied     = 'd'
	registryGeneration = 'g'
	registryServer     = 'i'
	registrySecretMin  = 'm'

	registryUseKeyBytes = 2 + 8 + 32
	registryServerBytes = 2 + 4
)

// What 'K' counts.
const (
	usageBytes  = 'b'
	usageInodes = 'i'

	usageTodo = 'd' // no counter: directories to be counted
)

// The keys that exist once.
const (
	keyFormat    = "Aformat"    // |format u32|cluster id u64|: written when the store is made
	keyNumbers   = "Anumbers"   // |next u64|: all smaller numbers are given out
	keyRename    = "Arename"    // written by whatever changes a directory's parent
	keyFiles     = "Afiles"     // counter: how many inodes there are
	keyLosses    = "Alosses"    // |u64|: how often an I/O server has lost its memory
	keyForgotten = "Aforgotten" // |from u64|to u64|: numbers of files that may have been forgotten
	keyDenials   = "Adenials"   // counter: how often the deny list has grown
	keyLives     = "Alives"     // |u32|: how often the service was started
	keyMap       = "Amap"       // |u64|: version of the map of servers and hosts
	keyNever     = "Anever"     // does not exist: what checks it fails
)

func key1(kind byte, a uint64) []byte {
	b := make([]byte, 1, 9)
	b[0] = kind
	return binary.BigEndian.AppendUint64(b, a)
}

func key2(kind byte, a, b uint64) []byte {
	k := make([]byte, 1, 17)
	k[0] = kind
	k = binary.BigEndian.AppendUint64(k, a)
	return binary.BigEndian.AppendUint64(k, b)
}

func keyName(kind byte, a uint64, name string) []byte {
	b := make([]byte, 1, 9+len(name))
	b[0] = kind
	b = binary.BigEndian.AppendUint64(b, a)
	return append(b, name...)
}

func inodeKey(ino meta.Ino) []byte                 { return key1(kindInode, uint64(ino)) }
func countKey(dir meta.Ino) []byte                 { return key1(kindCount, uint64(dir)) }
func timesKey(dir meta.Ino) []byte                 { return key1(kindTimes, uint64(dir)) }
func orphanKey(ino meta.Ino) []byte                { return key1(kindOrphan, uint64(ino)) }
func removalKey(ino meta.Ino) []byte               { return key1(kindRemoval, uint64(ino)) }
func pendingKey(ino meta.Ino) []byte               { return key1(kindPending, uint64(ino)) }
func sessionKey(id uint64) []byte                  { return key1(kindSession, id) }
func cookieKey(dir meta.Ino, cookie uint64) []byte { return key2(kindCookie, uint64(dir), cookie) }
func entryKey(dir meta.Ino, name string) []byte    { return keyName(kindEntry, uint64(dir), name) }
func xattrKey(ino meta.Ino, name string) []byte    { return keyName(kindXattr, uint64(ino), name) }
func volumeKey(name string) []byte                 { return append([]byte{kindVolume}, name...) }
func poolKey(name string) []byte                   { return append([]byte{kindPool}, name...) }
func hostKey(name string) []byte                   { return append([]byte{kindHost}, name...) }
func entriesOf(dir meta.Ino) []byte                { return key1(kindEntry, uint64(dir)) }
func smallKey(ino meta.Ino) []byte                 { return key1(kindSmall, uint64(ino)) }
func xattrsOf(ino meta.Ino) []byte                 { return key1(kindXattr, uint64(ino)) }
func quotaKey(id uint64) []byte                    { return key1(kindQuota, id) }
func usageKey(id uint64, what byte) []byte         { return append(key1(kindUsage, id), what) }
func xattrBytesKey(ino meta.Ino) []byte            { return key1(kindXattrs, uint64(ino)) }

func todosOf(id uint64) []byte { return usageKey(id, usageTodo) }

func todoKey(id uint64, dir meta.Ino) []byte {
	return binary.BigEndian.AppendUint64(todosOf(id), uint64(dir))
}

func serverKey(id uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{kindServer}, id)
}

// backlogOf is a server's list of late removals.
func backlogOf(server uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{kindBacklog}, server)
}

func backlogKey(server uint32, ino meta.Ino, stripe uint32) []byte {
	k := binary.BigEndian.AppendUint64(backlogOf(server), uint64(ino))
	return binary.BigEndian.AppendUint32(k, stripe)
}

// removalIno is the inode of a key of the deletion queue or of a list of late removals.
func removalIno(key []byte) meta.Ino {
	if key[0] == kindBacklog {
		key = key[4:]
	}
	return meta.Ino(number(key, 0))
}

func backlogStripe(key []byte) int { return int(binary.BigEndian.Uint32(key[13:])) }

// number reads the i-th 8-byte number behind the first byte of a key.
func number(key []byte, i int) uint64 {
	return binary.BigEndian.Uint64(key[1+8*i:])
}
