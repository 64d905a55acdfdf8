/* unmapped.c - memory that a program takes away while a request works with it: an error of the
 * request. Nobody else may get the addresses meanwhile, such as a thread for its stack: who works with
 * them then nobody can notice. */
#include "check.h"

enum { DEPTH = 8, BYTES = 1 << 20, ROUNDS = 40 };

static char page[BYTES];

/* One round: what was asked for comes, or EFAULT. */
static int taken_away(sluice_queue *queue, sluice_file *file, uint32_t op)
{
	struct sluice_completion c[DEPTH];
	char *memory[DEPTH];
	int i, n, got, failed = 0;

	for (i = 0; i < DEPTH; i++) {
		struct sluice_request r = {.size = sizeof r, .op = op, .file = file, .len = BYTES,
			.off = (int64_t)i * BYTES};

		memory[i] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(memory[i] != MAP_FAILED);
		r.buf = memory[i];
		CHECK(sluice_submit(queue, &r, 1) == 1);
	}
	for (i = 0; i < DEPTH; i++)
		CHECK(mprotect(memory[i], BYTES, PROT_NONE) == 0);
	for (got = 0; got < DEPTH; got += n) {
		n = sluice_complete(queue, c, DEPTH, 1, 60000);
		CHECK(n > 0);
		for (i = 0; i < n; i++) {
			CHECK(c[i].result == BYTES || c[i].result == -EFAULT);
			failed += c[i].result < 0;
		}
	}
	for (i = 0; i < DEPTH; i++)
		munmap(memory[i], BYTES);
	return failed;
}

int main(void)
{
	sluice_fs *fs = connect_or_die();
	sluice_file *file = sluice_open(fs, "/unmapped", O_RDWR | O_CREAT | O_TRUNC, 0644);
	sluice_queue *queue = sluice_queue_create(fs, DEPTH);
	int i, failed = 0;

	CHECK(file != NULL && queue != NULL);
	for (i = 0; i < DEPTH; i++)
		CHECK(sluice_pwrite(file, page, BYTES, (int64_t)i * BYTES) == BYTES);
	CHECK(sluice_sync(file) == 0);
	for (i = 0; i < ROUNDS; i++)
		failed += taken_away(queue, file, SLUICE_READ);
	CHECK(failed > 0); /* else it was always too late */
	for (i = 0; i < 4; i++)
		taken_away(queue, file, SLUICE_WRITE);
	CHECK(sluice_pread(file, page, BYTES, 0) == BYTES); /* all is well after that */
	CHECK(sluice_queue_destroy(queue) == 0);
	CHECK(sluice_close(file) == 0 && sluice_disconnect(fs) == 0);
	puts("ok");
	return 0;
}
