/*
 * hello.c - a file that is written, made durable and read back.
 *
 *   cc hello.c -o hello $(pkg-config --cflags --libs libsluice)
 *   ./hello sluice://127.0.0.1:9400
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sluice.h>

static void die(const char *what)
{
	perror(what);
	fprintf(stderr, "  %s\n", sluice_error());
	exit(1);
}

int main(int argc, char **argv)
{
	static const char line[] = "Hello, striped world\n";
	char back[sizeof line];
	struct sluice_stat st;
	sluice_fs *fs;
	sluice_file *file;

	fs = sluice_connect(argc > 1 ? argv[1] : NULL, NULL);
	if (fs == NULL)
		die("sluice_connect");
	file = sluice_open(fs, "/hello", O_RDWR | O_CREAT | O_TRUNC, 0644);
	if (file == NULL)
		die("sluice_open");
	if (sluice_pwrite(file, line, sizeof line, 0) != sizeof line)
		die("sluice_pwrite");
	if (sluice_sync(file) != 0) /* on disks from here on */
		die("sluice_sync");
	if (sluice_pread(file, back, sizeof back, 0) != sizeof back || memcmp(line, back, sizeof line) != 0)
		die("sluice_pread");
	if (sluice_close(file) != 0)
		die("sluice_close");
	if (sluice_stat(fs, "/hello", &st) != 0)
		die("sluice_stat");
	printf("%s%lld bytes, with %s\n", back, (long long)st.size, sluice_version());
	if (sluice_disconnect(fs) != 0)
		die("sluice_disconnect");
	return 0;
}
