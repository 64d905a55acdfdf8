/*
 * list.c - lists a directory of a cluster, like ls -l.
 *
 *   cc list.c -o list $(pkg-config --cflags --libs libsluice)
 *   ./list sluice://127.0.0.1:9400 /
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <sluice.h>

static void die(const char *what)
{
	perror(what);
	fprintf(stderr, "  %s\n", sluice_error());
	exit(1);
}

int main(int argc, char **argv)
{
	struct sluice_dirent e;
	sluice_fs *fs = sluice_connect(argc > 1 ? argv[1] : NULL, NULL);
	sluice_dir *dir;
	int n;

	if (fs == NULL)
		die("sluice_connect");
	dir = sluice_opendir(fs, argc > 2 ? argv[2] : "/");
	if (dir == NULL)
		die("sluice_opendir");
	while ((n = sluice_readdir(dir, &e)) == 1)
		printf("%06o %5u %5u %12lld %s%s\n", e.stat.mode, e.stat.uid, e.stat.gid,
		       (long long)e.stat.size, e.name, S_ISDIR(e.stat.mode) ? "/" : "");
	if (n < 0)
		die("sluice_readdir");
	if (sluice_closedir(dir) != 0 || sluice_disconnect(fs) != 0)
		die("the end");
	return 0;
}
