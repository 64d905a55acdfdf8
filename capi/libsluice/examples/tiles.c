/*
 * tiles.c - a picture that lies in a file row by row, read tile by tile: each tile is one request
 * to each server, whatever its number of rows, into memory that has a border around the tile.
 *
 *   cc tiles.c -o tiles $(pkg-config --cflags --libs libsluice)
 *   ./tiles sluice://127.0.0.1:9400
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sluice.h>

enum { WIDTH = 256, HEIGHT = 192, PIXEL = 24, ACROSS = 2, DOWN = 2, BORDER = 3 };
enum { TILE_W = WIDTH / ACROSS, TILE_H = HEIGHT / DOWN };

static void die(const char *what)
{
	perror(what);
	fprintf(stderr, "  %s\n", sluice_error());
	exit(1);
}

/* Every pixel is different from its neighbours. */
static unsigned char colour(int x, int y, int byte) { return (unsigned char)(x * 7 + y * 13 + byte); }

static void check(const unsigned char *tile, int tx, int ty)
{
	int x, y, b;

	for (y = 0; y < TILE_H; y++)
		for (x = 0; x < TILE_W; x++)
			for (b = 0; b < PIXEL; b++) {
				size_t at = ((size_t)(y + BORDER) * (TILE_W + 2 * BORDER) + x + BORDER) * PIXEL + b;

				if (tile[at] != colour(tx * TILE_W + x, ty * TILE_H + y, b)) {
					fprintf(stderr, "tile %d,%d differs at %d,%d\n", tx, ty, x, y);
					exit(1);
				}
			}
}

int main(int argc, char **argv)
{
	const size_t row = (size_t)WIDTH * PIXEL, line = (TILE_W + 2 * BORDER) * (size_t)PIXEL;
	const size_t bytes = line * (TILE_H + 2 * BORDER);
	struct sluice_layout layout = {.size = sizeof layout, .unit = 65536, .width = SLUICE_WIDTH_ALL};
	unsigned char *picture = malloc(row * HEIGHT), *tile;
	sluice_fs *fs = sluice_connect(argc > 1 ? argv[1] : NULL, NULL);
	sluice_file *file;
	int x, y, b;

	if (fs == NULL)
		die("sluice_connect");
	for (y = 0; y < HEIGHT; y++)
		for (x = 0; x < WIDTH; x++)
			for (b = 0; b < PIXEL; b++)
				picture[y * row + (size_t)x * PIXEL + b] = colour(x, y, b);
	file = sluice_create(fs, "/picture", O_RDWR | O_TRUNC, 0644, &layout);
	if (file == NULL || sluice_pwrite(file, picture, row * HEIGHT, 0) != (ssize_t)(row * HEIGHT))
		die("the picture");

	tile = sluice_alloc(fs, bytes);
	if (tile == NULL)
		die("sluice_alloc");
	for (y = 0; y < DOWN; y++)
		for (x = 0; x < ACROSS; x++) {
			struct sluice_dim rows = {TILE_H, (int64_t)row}, lines = {TILE_H, (int64_t)line};
			struct sluice_access in_file = {
				.kind = SLUICE_VECTOR, .count = 1, .u.dims = &rows,
				.off = (int64_t)(y * TILE_H * row + (size_t)x * TILE_W * PIXEL), .block = TILE_W * PIXEL};
			struct sluice_memory in_memory = {
				.base = tile,
				.access = {.kind = SLUICE_VECTOR, .count = 1, .u.dims = &lines,
				           .off = (int64_t)(BORDER * line + BORDER * PIXEL), .block = TILE_W * PIXEL}};
			struct sluice_parent parent = {.base = tile, .len = bytes};
			struct sluice_hints hints = {.size = sizeof hints, .count = 1, .parents = &parent};

			memset(tile, 0, bytes);
			if (sluice_read_list(file, &in_memory, &in_file, &hints) != TILE_H * TILE_W * PIXEL)
				die("sluice_read_list");
			check(tile, x, y);
			printf("tile %d,%d: %d rows in one call\n", x, y, TILE_H);
		}
	if (sluice_free(tile) != 0 || sluice_close(file) != 0 || sluice_disconnect(fs) != 0)
		die("the end");
	free(picture);
	return 0;
}
