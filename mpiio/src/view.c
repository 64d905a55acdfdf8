/* Views: which bytes of a file a process sees, as one long stream. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

/* As many tiles as there are offsets for; one where the next would not lie behind it. */
static bool tile(struct view *v, bool once) {
    const struct flat *f = v->flat;
    struct placed one = f->shape;
    v->shape = (struct placed){0, NULL};
    if (!one.n)
        return true; /* a filetype without bytes: a view in which there is nothing */
    if (__builtin_add_overflow(one.off, v->disp, &one.off))
        return false;
    int64_t end;
    if (__builtin_add_overflow(one.off, one.n->hi, &end))
        return false;
    int64_t tiles = INT64_MAX / one.n->size;
    if (f->extent > 0 && !once) {
        int64_t room = (INT64_MAX - end) / f->extent;
        tiles = tiles < room ? tiles : room;
    } else {
        tiles = 1;
    }
    v->once = f->extent <= 0 || once;
    return shape_rep(&v->arena, tiles ? tiles : 1, f->extent, one, &v->shape);
}

static bool fits(const struct shape *s, bool writes) {
    return s->ordered && !(writes && s->overlaps);
}

/* MPI: displacements of a filetype are not negative and never fall; where something can be written
 * no byte is in it twice. Of one tile and the next it says nothing: HDF5 makes types whose extent
 * is too short, because only some of their parts have a lower bound of their own, and uses a single
 * tile of them. */
static int check(struct view *v, bool writes) {
    const struct flat *f = v->flat;
    if (!f->shape.n)
        return MPI_SUCCESS;
    if (f->shape.off + f->shape.n->lo < 0 || !fits(f->shape.n, writes))
        return MPI_ERR_TYPE;
    if (fits(v->shape.n, writes))
        return MPI_SUCCESS;
    arena_free(&v->arena);
    v->arena = (struct arena){0};
    return tile(v, true) ? MPI_SUCCESS : MPI_ERR_TYPE;
}

int type_keep(MPI_Datatype t, MPI_Datatype *out) {
    if (!type_predefined(t))
        return PMPI_Type_dup(t, out);
    *out = t;
    return MPI_SUCCESS;
}

static void type_drop(MPI_Datatype *t) {
    if (*t != MPI_DATATYPE_NULL && !type_predefined(*t))
        PMPI_Type_free(t);
}

static int fill(struct view *v, MPI_Datatype etype, MPI_Datatype filetype, bool writes) {
    struct flat *e;
    int rc = flat_get(etype, &e);
    if (rc != MPI_SUCCESS)
        return MPI_ERR_TYPE;
    v->etype_size = e->size;
    flat_put(e);
    if (flat_get(filetype, &v->flat) != MPI_SUCCESS)
        return MPI_ERR_TYPE;
    if (v->etype_size <= 0 || v->flat->size % v->etype_size != 0 || !tile(v, false))
        return MPI_ERR_TYPE;
    if ((rc = check(v, writes)) != MPI_SUCCESS)
        return rc;
    /* The program may free its types: get_view returns our own. */
    rc = type_keep(etype, &v->etype);
    return rc == MPI_SUCCESS ? type_keep(filetype, &v->filetype) : rc;
}

int view_new(MPI_Offset disp, MPI_Datatype etype, MPI_Datatype filetype, const char *datarep,
             bool writes, struct view **out) {
    if (disp < 0)
        return MPI_ERR_ARG;
    if (!datarep || strlen(datarep) >= MPI_MAX_DATAREP_STRING)
        return MPI_ERR_ARG;
    /* Files are read where they are written: internal is what native is. */
    if (strcmp(datarep, "native") != 0 && strcmp(datarep, "internal") != 0)
        return MPI_ERR_UNSUPPORTED_DATAREP;
    struct view *v = calloc(1, sizeof *v);
    if (!v)
        return MPI_ERR_NO_MEM;
    v->refs = 1;
    v->disp = disp;
    v->etype = v->filetype = MPI_DATATYPE_NULL;
    strcpy(v->datarep, datarep);
    int rc = fill(v, etype, filetype, writes);
    if (rc != MPI_SUCCESS) {
        view_put(v);
        return rc;
    }
    *out = v;
    return MPI_SUCCESS;
}

struct view *view_ref(struct view *v) {
    __atomic_add_fetch(&v->refs, 1, __ATOMIC_RELAXED);
    return v;
}

void view_put(struct view *v) {
    if (!v || __atomic_sub_fetch(&v->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    type_drop(&v->etype);
    type_drop(&v->filetype);
    flat_put(v->flat);
    arena_free(&v->arena);
    free(v);
}
