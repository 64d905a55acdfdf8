/*
 * speed.c - how long a call takes: reads of one size from a file that is there, one after the other.
 *
 *   speed PATH BYTES COUNT malloc|alloc
 *
 * It prints the nanoseconds of the median call and of all calls.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sluice.h>

static void die(const char *what)
{
	perror(what);
	fprintf(stderr, "  %s\n", sluice_error());
	exit(1);
}

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	struct sluice_stat st;
	sluice_file *file;
	sluice_fs *fs;
	size_t bytes;
	int64_t *took, begin, at = 0;
	int count, i;
	void *buf;

	if (argc != 5) {
		fprintf(stderr, "usage: speed PATH BYTES COUNT malloc|alloc\n");
		return 2;
	}
	fs = sluice_connect(NULL, NULL);
	if (fs == NULL)
		die("sluice_connect");
	file = sluice_open(fs, argv[1], O_RDONLY, 0);
	if (file == NULL || sluice_fstat(file, &st) != 0)
		die(argv[1]);
	bytes = (size_t)atoll(argv[2]);
	count = atoi(argv[3]);
	took = calloc((size_t)count, sizeof *took);
	buf = strcmp(argv[4], "alloc") == 0 ? sluice_alloc(fs, bytes) : malloc(bytes);
	if (buf == NULL || took == NULL)
		die("memory");
	memset(buf, 1, bytes);
	begin = now();
	for (i = -count / 10; i < count; i++) { /* a tenth to get warm */
		int64_t t = now();

		if (i == 0)
			begin = t;
		if (sluice_pread(file, buf, bytes, at) != (ssize_t)bytes)
			die("sluice_pread");
		at += (int64_t)bytes;
		if (at + (int64_t)bytes > st.size)
			at = 0;
		if (i >= 0)
			took[i] = now() - t;
	}
	begin = now() - begin;
	qsort(took, (size_t)count, sizeof *took, compare);
	printf("%lld %lld\n", (long long)took[count / 2], (long long)(begin / count));
	return sluice_disconnect(fs) != 0;
}
