package main

import "github.com/sluice-storage/sluice/mount"

// tellLater is client.Options.TellLater of a mount. One that keeps nothing of files' data tells the
// service of names before programs hear of them, too.
func tellLater(cache string) int {
	if cache == string(mount.CacheStrict) {
		return -1
	}
	return 0
}
