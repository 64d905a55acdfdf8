/* arrays.c - what can be wrong with arrays is an error, and the program goes on. */
#include "check.h"

static double memory[64];

static void shapes(sluice_file *file)
{
	const int64_t good[2] = {4, 6}, negative[2] = {4, -1}, huge[3] = {INT64_MAX, INT64_MAX, 8};
	int64_t many[65];
	int i;

	for (i = 0; i < 65; i++)
		many[i] = 1;
	NULLS(sluice_array_create(file, "<f8", 2, negative, 0), EINVAL);
	NULLS(sluice_array_create(file, "<f9", 2, good, 0), EINVAL);
	NULLS(sluice_array_create(file, "", 2, good, 0), ENOENT);
	NULLS(sluice_array_create(file, NULL, 2, good, 0), EFAULT);
	NULLS(sluice_array_create(file, "<f8", 2, NULL, 0), EFAULT);
	NULLS(sluice_array_create(file, "<f8", 65, many, 0), EINVAL);
	NULLS(sluice_array_create(file, "<f8", UINT32_MAX, many, 0), EINVAL);
	NULLS(sluice_array_create(file, "<f8", 2, good, 8), EINVAL);
	errno = 0;
	CHECK(sluice_array_create(file, "<f8", 3, huge, 0) == NULL && errno != 0);
	CHECK(sluice_array_raw(file, -1, "<f8", 2, good, 0) == NULL && errno == EINVAL);
	CHECK(sluice_pwrite(file, "no array at all", 15, 0) == 15);
	errno = 0;
	CHECK(sluice_array_open(file) == NULL && errno != 0);
}

static void slices(sluice_array *array)
{
	const struct sluice_slice bad[][2] = {{{4, 1, 1}, {0, 1, 1}}, {{0, 5, 1}, {0, 1, 1}},
		{{-1, 1, 1}, {0, 1, 1}}, {{0, -1, 1}, {0, 1, 1}}, {{0, 2, INT64_MAX}, {0, 1, 1}},
		{{0, 2, INT64_MIN}, {0, 1, 1}}, {{3, INT64_MAX, -1}, {0, 1, 1}}, {{1, 3, -1}, {0, 1, 1}}};
	const struct sluice_slice none[2] = {{0, 0, 0}, {0, 6, 0}}, back[2] = {{3, 4, -1}, {5, 6, -1}};
	const int64_t over[2] = {8, 8}, far[2] = {INT64_MAX, 8}, low[2] = {INT64_MIN, 8};
	const int64_t turned[2] = {-48, -8};
	size_t i;

	for (i = 0; i < sizeof bad / sizeof bad[0]; i++)
		FAILS(sluice_array_read(array, bad[i], memory, NULL), EINVAL);
	CHECK(sluice_array_read(array, none, memory, NULL) == 0);
	FAILS(sluice_array_read(array, NULL, memory, over), EINVAL);
	CHECK(sluice_array_write(array, NULL, memory, over) == 4 * 6 * 8); /* one of them stays */
	for (i = 0; i < 24; i++)
		memory[i] = (double)i;
	CHECK(sluice_array_write(array, NULL, memory, NULL) == 4 * 6 * 8);
	memset(memory, 0, sizeof memory);
	CHECK(sluice_array_read(array, back, &memory[23], turned) == 4 * 6 * 8); /* twice backwards */
	for (i = 0; i < 24; i++)
		CHECK(memory[i] == (double)i);
	CHECK(sluice_array_read(array, NULL, memory, far) == -1 && errno != 0);
	CHECK(sluice_array_read(array, NULL, memory, low) == -1 && errno != 0);
	FAILS(sluice_array_read(array, NULL, NULL, NULL), EFAULT);
	FAILS(sluice_array_read(array, NULL, (void *)16, turned), EFAULT);
	FAILS(sluice_array_read(array, (const struct sluice_slice *)16, memory, NULL), EFAULT);
	FAILS(sluice_array_write(array, NULL, (void *)(uintptr_t)-4096, NULL), EFAULT);
}

static void tiles(sluice_array *array)
{
	const int64_t shape[2] = {2, 3}, zero[2] = {0, 3}, ghost[2] = {1, 1}, wide[2] = {9, 9};
	const int64_t at[2] = {0, 0}, out[2] = {2, 0}, before[2] = {-1, 0};
	struct sluice_tiling tiling = {.size = sizeof tiling, .shape = shape, .ghost = ghost};
	int64_t grid[2], low[2], high[2];

	CHECK(sluice_array_grid(array, &tiling, grid) == 0 && grid[0] == 2 && grid[1] == 2);
	CHECK(sluice_array_tile_box(array, &tiling, at, low, high) == 4 * 5 * 8);
	CHECK(low[0] == -1 && high[1] == 4);
	CHECK(sluice_array_tile_box(array, &tiling, at, NULL, NULL) == 4 * 5 * 8);
	FAILS(sluice_array_tile_box(array, &tiling, out, low, high), EINVAL);
	FAILS(sluice_array_tile_box(array, &tiling, before, low, high), EINVAL);
	FAILS(sluice_array_read_tile(array, &tiling, at, memory, 8), EINVAL);
	FAILS(sluice_array_read_tile(array, &tiling, at, NULL, 4 * 5 * 8), EFAULT);
	FAILS(sluice_array_write_tile(array, &tiling, NULL, memory, 4 * 5 * 8), EFAULT);
	FAILS(sluice_array_grid(array, &tiling, NULL), EFAULT);
	FAILS(sluice_array_grid(array, NULL, grid), EFAULT);
	tiling.flags = 64;
	FAILS(sluice_array_grid(array, &tiling, grid), EINVAL);
	tiling.flags = SLUICE_WRAP;
	CHECK(sluice_array_read_tile(array, &tiling, at, memory, 4 * 5 * 8) == 4 * 5 * 8);
	CHECK(memory[0] == 23 && memory[6] == 0); /* the last element is the first one's neighbour */
	tiling.ghost = wide;
	FAILS(sluice_array_grid(array, &tiling, grid), EINVAL);
	tiling.ghost = NULL;
	tiling.shape = zero;
	FAILS(sluice_array_grid(array, &tiling, grid), EINVAL);
	tiling.size = 0;
	FAILS(sluice_array_grid(array, &tiling, grid), EINVAL);
}

int main(void)
{
	const int64_t shape[2] = {4, 6};
	struct sluice_array_info info = {.size = 0};
	sluice_fs *fs = connect_or_die();
	sluice_file *file = sluice_open(fs, "/arrays", O_RDWR | O_CREAT | O_TRUNC, 0644), *other;
	sluice_array *array;

	CHECK(file != NULL);
	shapes(file);
	array = sluice_array_create(file, "float64", 2, shape, SLUICE_FORTRAN);
	CHECK(array != NULL);
	FAILS(sluice_array_info(array, &info), EINVAL);
	FAILS(sluice_array_info(array, NULL), EFAULT);
	info.size = sizeof info;
	CHECK(sluice_array_info(array, &info) == 0 && info.axes == 2 && info.shape[1] == 6);
	CHECK(info.element == 8 && info.bytes == 4 * 6 * 8 && info.flags == SLUICE_FORTRAN);
	CHECK(info.offset > 0 && strcmp(info.dtype, "<f8") == 0);
	slices(array);
	tiles(array);
	FAILS(sluice_sync((sluice_file *)array), EBADF);
	FAILS(sluice_array_close((sluice_array *)file), EBADF);
	CHECK(sluice_array_close(array) == 0);
	FAILS(sluice_array_close(array), EBADF);
	FAILS(sluice_array_read(array, NULL, memory, NULL), EBADF);
	FAILS(sluice_array_read(NULL, NULL, memory, NULL), EBADF);
	array = sluice_array_open(file);
	CHECK(array != NULL && sluice_close(file) == 0);
	CHECK(sluice_array_read(array, NULL, memory, NULL) == -1 && errno != 0); /* its file was closed */
	CHECK(sluice_array_sync(array) == -1 && errno != 0);
	NULLS(sluice_array_open(file), EBADF);
	other = sluice_open(fs, "/arrays", O_WRONLY | O_APPEND, 0);
	CHECK(other != NULL);
	NULLS(sluice_array_raw(other, 0, "<f8", 2, shape, 0), EINVAL);
	CHECK(sluice_close(other) == 0 && sluice_disconnect(fs) == 0);
	FAILS(sluice_array_close(array), EBADF);
	return 0;
}
