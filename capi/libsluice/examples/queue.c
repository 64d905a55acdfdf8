/*
 * queue.c - many requests under way from one thread, which waits for them with poll(2).
 *
 *   cc queue.c -o queue $(pkg-config --cflags --libs libsluice)
 *   ./queue sluice://127.0.0.1:9400
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sluice.h>

enum { BLOCKS = 64, BLOCK = 65536, DEPTH = 16 };

static void die(const char *what)
{
	perror(what);
	fprintf(stderr, "  %s\n", sluice_error());
	exit(1);
}

/* Runs op on every block of the file, DEPTH at a time. */
static void run(sluice_queue *queue, sluice_file *file, unsigned char *memory, unsigned op)
{
	struct sluice_completion done[DEPTH];
	struct pollfd event = {.fd = sluice_queue_fd(queue), .events = POLLIN};
	int next = 0, finished = 0, i, n;

	while (finished < BLOCKS) {
		while (next < BLOCKS) {
			struct sluice_request r = {.size = sizeof r, .op = op, .file = file, .tag = (uint64_t)next,
				.buf = memory + (size_t)next * BLOCK, .len = BLOCK, .off = (int64_t)next * BLOCK};

			n = sluice_submit(queue, &r, 1);
			if (n < 0)
				die("sluice_submit");
			if (n == 0)
				break; /* the queue is full */
			next++;
		}
		if (poll(&event, 1, -1) < 0)
			die("poll");
		n = sluice_complete(queue, done, DEPTH, 1, -1);
		if (n < 0)
			die("sluice_complete");
		for (i = 0; i < n; i++)
			if (done[i].result != BLOCK) {
				fprintf(stderr, "block %llu: %s\n", (unsigned long long)done[i].tag, done[i].error);
				exit(1);
			}
		finished += n;
	}
}

int main(int argc, char **argv)
{
	sluice_fs *fs = sluice_connect(argc > 1 ? argv[1] : NULL, NULL);
	sluice_file *file;
	sluice_queue *queue;
	unsigned char *memory;
	size_t i;

	if (fs == NULL)
		die("sluice_connect");
	file = sluice_open(fs, "/blocks", O_RDWR | O_CREAT | O_TRUNC, 0644);
	queue = sluice_queue_create(fs, DEPTH);
	memory = sluice_alloc(fs, (size_t)BLOCKS * BLOCK);
	if (file == NULL || queue == NULL || memory == NULL)
		die("the beginning");
	for (i = 0; i < (size_t)BLOCKS * BLOCK; i++)
		memory[i] = (unsigned char)(i / 251);
	run(queue, file, memory, SLUICE_WRITE);
	memset(memory, 0, (size_t)BLOCKS * BLOCK);
	run(queue, file, memory, SLUICE_READ);
	for (i = 0; i < (size_t)BLOCKS * BLOCK; i++)
		if (memory[i] != (unsigned char)(i / 251)) {
			fprintf(stderr, "byte %zu differs\n", i);
			return 1;
		}
	printf("%d blocks written and read, %d at a time\n", BLOCKS, DEPTH);
	if (sluice_queue_destroy(queue) != 0 || sluice_close(file) != 0 || sluice_disconnect(fs) != 0)
		die("the end");
	return 0;
}
