/*
 * arrays.c - a field of numbers that NumPy reads, too: written from a part of a larger array in
 * memory, read by slices, and tile by tile with the neighbours' cells.
 *
 *   cc arrays.c -o arrays $(pkg-config --cflags --libs libsluice)
 *   ./arrays sluice://127.0.0.1:9400
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sluice.h>

enum { ROWS = 60, COLUMNS = 100, MARGIN = 4 };

static void die(const char *what)
{
	perror(what);
	fprintf(stderr, "  %s\n", sluice_error());
	exit(1);
}

static double value(int64_t row, int64_t column) { return (double)(row * 1000 + column); }

static void expect(double got, int64_t row, int64_t column)
{
	if (got != value(row, column)) {
		fprintf(stderr, "row %d, column %d: %g\n", (int)row, (int)column, got);
		exit(1);
	}
}

/* Every tile with two cells of its neighbours at each side. */
static void tiles(sluice_array *array)
{
	const int64_t shape[2] = {16, 32}, ghost[2] = {2, 2};
	const struct sluice_tiling tiling = {.size = sizeof tiling, .shape = shape, .ghost = ghost};
	int64_t grid[2], at[2], low[2], high[2], row, column;

	if (sluice_array_grid(array, &tiling, grid) != 0)
		die("sluice_array_grid");
	for (at[0] = 0; at[0] < grid[0]; at[0]++)
		for (at[1] = 0; at[1] < grid[1]; at[1]++) {
			ssize_t bytes = sluice_array_tile_box(array, &tiling, at, low, high);
			double *tile = bytes < 0 ? NULL : malloc((size_t)bytes);

			if (tile == NULL || sluice_array_read_tile(array, &tiling, at, tile, (size_t)bytes) != bytes)
				die("a tile");
			for (row = low[0]; row < high[0]; row++)
				for (column = low[1]; column < high[1]; column++)
					if (row >= 0 && row < ROWS && column >= 0 && column < COLUMNS)
						expect(tile[(row - low[0]) * (high[1] - low[1]) + column - low[1]], row, column);
			if (sluice_array_write_tile(array, &tiling, at, tile, (size_t)bytes) != bytes)
				die("writing a tile");
			free(tile);
		}
	printf("%d x %d tiles\n", (int)grid[0], (int)grid[1]);
}

int main(int argc, char **argv)
{
	static double field[ROWS + 2 * MARGIN][COLUMNS + 2 * MARGIN], part[10][25];
	const int64_t shape[2] = {ROWS, COLUMNS}, strides[2] = {sizeof field[0], sizeof(double)};
	const struct sluice_slice slices[2] = {{50, 10, -5}, {0, 25, 4}}; /* [50:0:-5, ::4] */
	struct sluice_array_info info = {.size = sizeof info};
	sluice_fs *fs = sluice_connect(argc > 1 ? argv[1] : NULL, NULL);
	sluice_file *file;
	sluice_array *array;
	int row, column;

	if (fs == NULL)
		die("sluice_connect");
	for (row = 0; row < ROWS; row++)
		for (column = 0; column < COLUMNS; column++)
			field[row + MARGIN][column + MARGIN] = value(row, column);
	file = sluice_open(fs, "/field.npy", O_RDWR | O_CREAT | O_TRUNC, 0644);
	array = file == NULL ? NULL : sluice_array_create(file, "<f8", 2, shape, 0);
	if (array == NULL)
		die("/field.npy");
	if (sluice_array_write(array, NULL, &field[MARGIN][MARGIN], strides) != sizeof(double) * ROWS * COLUMNS)
		die("sluice_array_write");
	if (sluice_array_sync(array) != 0 || sluice_array_close(array) != 0)
		die("sluice_array_sync");

	array = sluice_array_open(file);
	if (array == NULL || sluice_array_info(array, &info) != 0)
		die("sluice_array_open");
	printf("%d axes of %s: %d x %d, from byte %d on\n", (int)info.axes, info.dtype,
	       (int)info.shape[0], (int)info.shape[1], (int)info.offset);
	if (sluice_array_read(array, slices, part, NULL) != sizeof part)
		die("sluice_array_read");
	for (row = 0; row < 10; row++)
		for (column = 0; column < 25; column++)
			expect(part[row][column], 50 - 5 * row, 4 * column);
	tiles(array);
	if (sluice_array_close(array) != 0 || sluice_close(file) != 0 || sluice_disconnect(fs) != 0)
		die("the end");
	return 0;
}
