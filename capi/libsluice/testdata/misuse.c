/* misuse.c - all that a program can do wrong is an error, and the program goes on. */
#include "check.h"

static char page[4096];

static void handles(sluice_fs *fs)
{
	struct sluice_stat st;
	struct sluice_dirent e;
	sluice_file *file = sluice_open(fs, "/misuse", O_RDWR | O_CREAT | O_TRUNC, 0644), *other;
	sluice_dir *dir;

	CHECK(file != NULL);
	FAILS(sluice_pread(NULL, page, 1, 0), EBADF);
	FAILS(sluice_pread((sluice_file *)fs, page, 1, 0), EBADF);
	FAILS(sluice_pread((sluice_file *)page, page, 1, 0), EBADF);
	FAILS(sluice_pread((sluice_file *)(uintptr_t)-1, page, 1, 0), EBADF);
	FAILS(sluice_stat((sluice_fs *)file, "/", &st), EBADF);
	CHECK(sluice_close(file) == 0);
	FAILS(sluice_close(file), EBADF);
	FAILS(sluice_pwrite(file, page, 1, 0), EBADF);
	FAILS(sluice_sync(file), EBADF);
	other = sluice_open(fs, "/misuse", O_RDONLY, 0);
	CHECK(other != NULL && other != file);
	FAILS(sluice_fstat(file, &st), EBADF); /* it is not the next one's */
	FAILS(sluice_pwrite(other, page, 1, 0), EBADF);
	CHECK(sluice_close(other) == 0);
	dir = sluice_opendir(fs, "/");
	CHECK(dir != NULL && sluice_closedir(dir) == 0);
	FAILS(sluice_readdir(dir, &e), EBADF);
	FAILS(sluice_closedir(dir), EBADF);
	FAILS(sluice_queue_destroy((sluice_queue *)dir), EBADF);
}

static void pointers(sluice_fs *fs)
{
	sluice_file *file = sluice_open(fs, "/pointers", O_RDWR | O_CREAT | O_TRUNC, 0644);
	char *gone = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *fixed = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iovec iov = {gone + 4096, 10};
	struct sluice_stat st;

	CHECK(file != NULL && gone != MAP_FAILED && fixed != MAP_FAILED);
	CHECK(sluice_pwrite(file, page, sizeof page, 0) == sizeof page);
	CHECK(munmap(gone + 4096, 4096) == 0);
	FAILS(sluice_pread(file, NULL, 1, 0), EFAULT);
	FAILS(sluice_pread(file, gone + 4096, 1, 0), EFAULT);
	FAILS(sluice_pread(file, gone + 4000, 1000, 0), EFAULT); /* into what is gone */
	FAILS(sluice_pwrite(file, gone + 4096, 4096, 0), EFAULT);
	FAILS(sluice_pwrite(file, (void *)16, 10, 0), EFAULT);
	FAILS(sluice_pread(file, (void *)(uintptr_t)-4096, 8192, 0), EFAULT);
	FAILS(sluice_append(file, gone + 4096, 1), EFAULT);
	FAILS(sluice_preadv(file, NULL, 1, 0), EFAULT);
	FAILS(sluice_preadv(file, (struct iovec *)(gone + 4096), 1, 0), EFAULT);
	FAILS(sluice_preadv(file, &iov, 1, 0), EFAULT);
	FAILS(sluice_preadv(file, &iov, -1, 0), EINVAL);
	FAILS(sluice_preadv(file, &iov, 1 << 20, 0), EINVAL);
	FAILS(sluice_fstat(file, NULL), EFAULT);
	FAILS(sluice_fstat(file, (struct sluice_stat *)(gone + 4096)), EFAULT);
	FAILS(sluice_fstat(file, (struct sluice_stat *)fixed), EFAULT); /* it cannot be written */
	FAILS(sluice_pread(file, fixed, 8, 0), EFAULT);
	FAILS(sluice_stat(fs, NULL, &st), EFAULT);
	FAILS(sluice_stat(fs, gone + 4096, &st), EFAULT);
	memset(gone, 'x', 4096);
	FAILS(sluice_stat(fs, gone, &st), EFAULT); /* a text that does not end */
	FAILS(sluice_stat(fs, "", &st), ENOENT);
	FAILS(sluice_pread(file, page, 1, -1), EINVAL);
	FAILS(sluice_pwrite(file, page, 1, -1), EINVAL);
	FAILS(sluice_pread(file, page, (size_t)-1, 0), EFAULT);
	CHECK(sluice_pread(file, NULL, 0, 0) == 0);
	CHECK(sluice_pread(file, page, sizeof page, 0) == sizeof page); /* all is well after that */
	CHECK(sluice_close(file) == 0);
	munmap(gone, 4096);
	munmap(gone + 8192, 4096);
	munmap(fixed, 4096);
}

static void sizes(sluice_fs *fs)
{
	struct sluice_options options = {.size = 3};
	struct sluice_layout layout = {.size = 0, .width = 1};
	struct sluice_hints hints = {.size = 1};
	struct sluice_piece piece = {0, 8}, back = {-8, 8}, lots = {0, INT64_MAX};
	struct sluice_access eight = {.count = 1, .u.pieces = &piece}, negative = {.count = 1, .u.pieces = &back},
		many = {.count = 5 << 20, .u.pieces = &piece}, missing = {.count = 1},
		unknown = {.kind = 7}, huge = {.count = 1, .u.pieces = &lots};
	struct sluice_dim billion[2] = {{1 << 30, 8}, {1 << 30, 8}}, down = {4, -8};
	struct sluice_access vast = {.kind = SLUICE_VECTOR, .count = 2, .u.dims = billion, .block = 8},
		deep = {.kind = SLUICE_VECTOR, .count = 9, .u.dims = billion, .block = 8},
		descending = {.kind = SLUICE_VECTOR, .count = 1, .u.dims = &down, .block = 8};
	struct sluice_memory memory = {.base = page, .access = eight}, none = {.access = eight},
		four = {.base = page, .access = {.kind = SLUICE_VECTOR, .block = 4}};
	sluice_file *file;

	NULLS(sluice_connect(NULL, &options), EINVAL);
	options.size = sizeof options;
	options.flags = 128;
	NULLS(sluice_connect(NULL, &options), EINVAL);
	NULLS(sluice_connect("http://127.0.0.1:80", NULL), EINVAL);
	NULLS(sluice_connect("sluice://nowhere", NULL), EINVAL);
	NULLS(sluice_connect("/nonexistent", NULL), ENOENT);
	NULLS(sluice_create(fs, "/sizes", O_RDWR, 0644, &layout), EINVAL);
	layout.size = sizeof layout;
	layout.unit = 12345;
	NULLS(sluice_create(fs, "/sizes", O_RDWR, 0644, &layout), EINVAL);
	NULLS(sluice_open(fs, "/sizes", O_RDWR | O_DIRECTORY, 0), EINVAL);
	NULLS(sluice_open(fs, "/absent", O_RDONLY, 0), ENOENT);
	NULLS(sluice_alloc(fs, 0), EINVAL);
	NULLS(sluice_alloc(fs, (size_t)-1), EINVAL);
	NULLS(sluice_alloc(fs, (size_t)1 << 46), ENOMEM); /* more than any host has */
	NULLS(sluice_queue_create(fs, 0), EINVAL);
	file = sluice_open(fs, "/sizes", O_RDWR | O_CREAT, 0644);
	CHECK(file != NULL);
	FAILS(sluice_read_list(file, NULL, &eight, NULL), EFAULT);
	FAILS(sluice_read_list(file, &memory, NULL, NULL), EFAULT);
	FAILS(sluice_read_list(file, &none, &eight, NULL), EFAULT);
	FAILS(sluice_read_list(file, &four, &eight, NULL), EINVAL);
	FAILS(sluice_read_list(file, &memory, &eight, &hints), EINVAL);
	FAILS(sluice_write_list(file, &memory, &negative, NULL), EINVAL);
	FAILS(sluice_write_list(file, &memory, &many, NULL), E2BIG);
	FAILS(sluice_write_list(file, &memory, &missing, NULL), EFAULT);
	FAILS(sluice_write_list(file, &memory, &unknown, NULL), EINVAL);
	FAILS(sluice_write_list(file, &memory, &huge, NULL), EINVAL);
	FAILS(sluice_write_list(file, &memory, &vast, NULL), E2BIG);
	FAILS(sluice_write_list(file, &memory, &deep, NULL), EINVAL);
	FAILS(sluice_write_list(file, &memory, &descending, NULL), EINVAL);
	CHECK(sluice_write_list(file, &memory, &eight, NULL) == 8);
	CHECK(sluice_close(file) == 0);
}

static void freed(sluice_fs *fs)
{
	size_t sizes[] = {100, 65536, 1 << 20, 5 << 20};
	sluice_file *file = sluice_open(fs, "/freed", O_RDWR | O_CREAT | O_TRUNC, 0644);
	unsigned i;

	CHECK(file != NULL);
	for (i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		char *m = sluice_alloc(fs, sizes[i]);

		CHECK(m != NULL);
		memset(m, (int)i, sizes[i]);
		CHECK(sluice_is_shared(m) >= 0);
		CHECK(sluice_pwrite(file, m, sizes[i], 0) == (ssize_t)sizes[i]);
		FAILS(sluice_free(m + 1), EINVAL);
		CHECK(sluice_free(m) == 0);
		FAILS(sluice_free(m), EINVAL);
		FAILS(sluice_is_shared(m), EINVAL);
		usleep(10000); /* what was seen to be mapped is believed for a moment */
		FAILS(sluice_pwrite(file, m, sizes[i], 0), EFAULT);
	}
	FAILS(sluice_free(NULL), EINVAL);
	FAILS(sluice_free(page), EINVAL);
	CHECK(sluice_close(file) == 0);
}

static void queues(sluice_fs *fs)
{
	sluice_queue *queue = sluice_queue_create(fs, 2);
	sluice_file *file = sluice_open(fs, "/queues", O_RDWR | O_CREAT | O_TRUNC, 0644);
	struct sluice_request r = {.size = sizeof r, .op = SLUICE_WRITE, .file = file, .tag = 7,
		.buf = page, .len = 8}, bad = r, three[3];
	struct sluice_completion c[4];

	CHECK(queue != NULL && file != NULL);
	bad.size = 0;
	FAILS(sluice_submit(queue, &bad, 1), EINVAL);
	FAILS(sluice_submit(queue, NULL, 1), EFAULT);
	bad = r;
	bad.op = 99;
	FAILS(sluice_submit(queue, &bad, 1), EINVAL);
	bad = r;
	bad.buf = NULL;
	FAILS(sluice_submit(queue, &bad, 1), EFAULT);
	bad = r;
	bad.file = NULL;
	FAILS(sluice_submit(queue, &bad, 1), EBADF);
	CHECK(sluice_complete(queue, c, 4, 1, -1) == 0); /* nothing is under way */
	three[0] = three[1] = three[2] = r;
	CHECK(sluice_submit(queue, three, 3) == 2);
	FAILS(sluice_complete(queue, c, 1, 2, -1), EINVAL);
	FAILS(sluice_complete(queue, NULL, 1, 1, -1), EFAULT);
	CHECK(sluice_complete(queue, c, 4, 2, -1) == 2);
	CHECK(c[0].tag == 7 && c[0].result == 8 && c[0].error[0] == 0);
	r.off = -5; /* it fails when it runs */
	CHECK(sluice_submit(queue, &r, 1) == 1 && sluice_complete(queue, c, 1, 1, 60000) == 1);
	CHECK(c[0].result == -EINVAL && c[0].error[0] != 0);
	CHECK(sluice_queue_destroy(queue) == 0);
	FAILS(sluice_queue_destroy(queue), EBADF);
	FAILS(sluice_submit(queue, &r, 1), EBADF);
	FAILS(sluice_queue_fd(queue), EBADF);
	CHECK(sluice_close(file) == 0);
}

int main(void)
{
	sluice_fs *fs = connect_or_die();
	sluice_file *file;
	sluice_queue *queue;
	char *m;

	handles(fs);
	pointers(fs);
	sizes(fs);
	freed(fs);
	queues(fs);
	/* What goes with its connection. */
	file = sluice_open(fs, "/misuse", O_RDWR, 0);
	queue = sluice_queue_create(fs, 4);
	m = sluice_alloc(fs, 4096);
	CHECK(file != NULL && queue != NULL && m != NULL);
	CHECK(sluice_disconnect(fs) == 0);
	FAILS(sluice_disconnect(fs), EBADF);
	FAILS(sluice_pread(file, page, 1, 0), EBADF);
	FAILS(sluice_close(file), EBADF);
	FAILS(sluice_queue_destroy(queue), EBADF);
	FAILS(sluice_free(m), EINVAL);
	NULLS(sluice_open(fs, "/misuse", O_RDONLY, 0), EBADF);
	puts("ok");
	return 0;
}
