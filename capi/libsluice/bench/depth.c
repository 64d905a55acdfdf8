/*
 * depth.c - what a request of a queue costs: reads of one size from a file that is there, many of
 * them under way from one thread.
 *
 *   depth PATH BYTES COUNT DEPTH
 *
 * It prints the nanoseconds of a request: of the clock, and of the processor in all threads.
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

static int64_t now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

int main(int argc, char **argv)
{
	struct sluice_completion done[64];
	struct sluice_stat st;
	int64_t bytes, count, began, used, submitted = 0, taken = 0;
	unsigned depth;
	sluice_fs *fs;
	sluice_file *file;
	sluice_queue *queue;
	char *memory;
	int n, i;

	if (argc != 5)
		return 2;
	bytes = atoll(argv[2]);
	count = atoll(argv[3]);
	depth = (unsigned)atoi(argv[4]);
	fs = sluice_connect(NULL, NULL);
	file = fs == NULL ? NULL : sluice_open(fs, argv[1], O_RDONLY, 0);
	queue = file == NULL ? NULL : sluice_queue_create(fs, depth);
	if (queue == NULL || sluice_fstat(file, &st) != 0)
		die(argv[1]);
	memory = sluice_alloc(fs, (size_t)bytes * depth);
	if (memory == NULL || st.size < bytes)
		die("memory, or a file that is too short");
	began = now(CLOCK_MONOTONIC);
	used = now(CLOCK_PROCESS_CPUTIME_ID);
	while (taken < count) {
		while (submitted < count && submitted - taken < depth) {
			struct sluice_request r = {.size = sizeof r, .op = SLUICE_READ, .file = file,
				.buf = memory + submitted % depth * bytes, .len = (uint64_t)bytes,
				.off = submitted % (st.size / bytes) * bytes};

			if (sluice_submit(queue, &r, 1) != 1)
				die("sluice_submit");
			submitted++;
		}
		n = sluice_complete(queue, done, 64, 1, -1);
		if (n < 1)
			die("sluice_complete");
		for (i = 0; i < n; i++)
			if (done[i].result != bytes) {
				fprintf(stderr, "%lld bytes: %s\n", (long long)done[i].result, done[i].error);
				return 1;
			}
		taken += n;
	}
	printf("%lld %lld\n", (long long)((now(CLOCK_MONOTONIC) - began) / count),
	       (long long)((now(CLOCK_PROCESS_CPUTIME_ID) - used) / count));
	sluice_queue_destroy(queue);
	sluice_disconnect(fs);
	return 0;
}
