/* A rank that is killed in the middle of collective writes.
 *
 *   mpiexec -n 4 killed FILE write    all ranks write generation 1, woven in pieces, and sync
 *   mpiexec -n 4 killed FILE kill     they write generation 2; rank 1 is killed half-way
 *   mpiexec -n 4 killed FILE check    each byte is of generation 1 or 2, ranks before it are whole;
 *                                     then all write generation 3 and read it back
 */
#include "types.h"

#include <signal.h>
#include <unistd.h>

enum { PIECE = 3000, PIECES = 100, CALLS = 8, BYTES = PIECE * PIECES };

static int rank, ranks;
static char *buf;

static MPI_File open_view(const char *name) {
    MPI_File fh;
    MPI_Datatype piece, t;
    must(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &fh),
         "open");
    MPI_Type_contiguous(PIECE, MPI_BYTE, &piece);
    MPI_Type_create_resized(piece, 0, (MPI_Aint)PIECE * ranks, &t);
    MPI_Type_commit(&t);
    must(MPI_File_set_view(fh, (MPI_Offset)rank * PIECE, MPI_BYTE, t, "native", MPI_INFO_NULL),
         "view");
    MPI_Type_free(&t);
    MPI_Type_free(&piece);
    return fh;
}

static char content(int generation, int r, int64_t i) {
    return (char)(generation * 64 + r * 5 + i % 47);
}

static void write_all(MPI_File fh, int generation, int victim) {
    MPI_Status st;
    for (int c = 0; c < CALLS; c++) {
        if (c == CALLS / 2 && rank == victim)
            kill(getpid(), SIGKILL);
        for (int i = 0; i < BYTES; i++)
            buf[i] = content(generation, rank, i);
        must(MPI_File_write_at_all(fh, (MPI_Offset)c * BYTES, buf, BYTES, MPI_BYTE, &st), "write");
    }
    must(MPI_File_sync(fh), "sync");
}

/* Each byte is of one of two generations; returns how many are of the second. */
static int64_t check_all(MPI_File fh, int a, int b) {
    MPI_Status st;
    int64_t n = 0;
    for (int c = 0; c < CALLS; c++) {
        must(MPI_File_read_at_all(fh, (MPI_Offset)c * BYTES, buf, BYTES, MPI_BYTE, &st), "read");
        for (int i = 0; i < BYTES; i++) {
            if (buf[i] != content(a, rank, i) && buf[i] != content(b, rank, i))
                die("a byte that nobody has written");
            n += buf[i] == content(b, rank, i);
        }
        if (rank == 1 && n != (int64_t)BYTES * (c + 1 < CALLS / 2 ? c + 1 : CALLS / 2) && a != b)
            die("what a rank had written before it was killed is not there, or more is");
    }
    return n;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 3 || ranks < 2)
        die("usage: killed FILE write|kill|check");
    buf = malloc(BYTES);
    MPI_File fh = open_view(argv[1]);
    if (strcmp(argv[2], "write") == 0)
        write_all(fh, 1, -1);
    else if (strcmp(argv[2], "kill") == 0)
        write_all(fh, 2, 1);
    else {
        check_all(fh, 1, 2);
        MPI_Barrier(MPI_COMM_WORLD);
        write_all(fh, 3, -1);
        MPI_Barrier(MPI_COMM_WORLD);
        if (check_all(fh, 3, 3) != (int64_t)CALLS * BYTES)
            die("not what was written");
    }
    must(MPI_File_close(&fh), "close");
    if (rank == 0)
        printf("ok: %s\n", argv[2]);
    MPI_Finalize();
    return 0;
}
