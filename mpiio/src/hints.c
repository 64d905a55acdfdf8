/* Hints: what an MPI_Info says about a file. Keys that are unknown, and values that make no sense,
 * are ignored, as MPI wants it; MPI_File_get_info shows what is in use. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CB_BUFFER_SIZE = 16 << 20, CB_BUFFER_MIN = 64 << 10, CB_BUFFER_MAX = 256 << 20 };

static bool get(MPI_Info info, const char *key, char *value, size_t size) {
    int found = 0;
    if (PMPI_Info_get(info, key, (int)size - 1, value, &found) != MPI_SUCCESS)
        return false;
    value[size - 1] = 0;
    return found != 0;
}

static void number(MPI_Info info, const char *key, int64_t lo, int64_t hi, int64_t *out) {
    char text[MPI_MAX_INFO_VAL + 1], *end;
    if (!get(info, key, text, sizeof text))
        return;
    long long n = strtoll(text, &end, 10);
    if (end != text && *end == 0 && n >= lo && n <= hi)
        *out = n;
}

static void mode(MPI_Info info, const char *key, enum cb_mode *out) {
    char text[MPI_MAX_INFO_VAL + 1];
    if (!get(info, key, text, sizeof text))
        return;
    if (strcmp(text, "enable") == 0)
        *out = CB_ENABLE;
    else if (strcmp(text, "disable") == 0)
        *out = CB_DISABLE;
    else if (strcmp(text, "automatic") == 0)
        *out = CB_AUTOMATIC;
}

static void yes_no(MPI_Info info, const char *key, const char *yes, const char *no, bool *out) {
    char text[MPI_MAX_INFO_VAL + 1];
    if (!get(info, key, text, sizeof text))
        return;
    if (strcmp(text, yes) == 0)
        *out = true;
    else if (strcmp(text, no) == 0)
        *out = false;
}

/* MPI's own word for both of ROMIO's. */
static void collective_buffering(MPI_Info info, struct hints *h) {
    char text[MPI_MAX_INFO_VAL + 1];
    if (!get(info, "collective_buffering", text, sizeof text))
        return;
    if (strcmp(text, "true") == 0)
        h->cb_read = h->cb_write = CB_ENABLE;
    else if (strcmp(text, "false") == 0)
        h->cb_read = h->cb_write = CB_DISABLE;
}

void hints_default(struct hints *h) {
    *h = (struct hints){.cb_buffer_size = CB_BUFFER_SIZE};
}

void hints_read(MPI_Info info, struct hints *h) {
    if (info == MPI_INFO_NULL)
        return;
    char pool[MPI_MAX_INFO_VAL + 1];
    number(info, "striping_factor", -1, INT64_MAX, &h->striping_factor);
    number(info, "striping_unit", 64 << 10, 16 << 20, &h->striping_unit);
    number(info, "cb_buffer_size", CB_BUFFER_MIN, CB_BUFFER_MAX, &h->cb_buffer_size);
    number(info, "cb_nodes", 1, 1 << 20, &h->cb_nodes);
    collective_buffering(info, h);
    mode(info, "romio_cb_read", &h->cb_read);
    mode(info, "romio_cb_write", &h->cb_write);
    yes_no(info, "sluice_shared_pointer", "rma", "automatic", &h->rma);
    yes_no(info, "sluice_cache", "direct", "cached", &h->direct);
    if (get(info, "sluice_pool", pool, sizeof pool) && strlen(pool) < sizeof h->pool)
        strcpy(h->pool, pool);
}

static const char *mode_name(enum cb_mode m) {
    static const char *const names[] = {"automatic", "enable", "disable"};
    return names[m];
}

static int set_number(MPI_Info info, const char *key, int64_t n) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)n);
    return PMPI_Info_set(info, key, text);
}

int hints_report(const struct hints *h, MPI_Info *out) {
    int rc = PMPI_Info_create(out);
    if (rc != MPI_SUCCESS)
        return rc;
    rc |= set_number(*out, "striping_factor", h->striping_factor);
    rc |= set_number(*out, "striping_unit", h->striping_unit);
    rc |= set_number(*out, "cb_buffer_size", h->cb_buffer_size);
    rc |= set_number(*out, "cb_nodes", h->cb_nodes);
    bool never = h->cb_read == CB_DISABLE && h->cb_write == CB_DISABLE;
    rc |= PMPI_Info_set(*out, "collective_buffering", never ? "false" : "true");
    rc |= PMPI_Info_set(*out, "romio_cb_read", mode_name(h->cb_read));
    rc |= PMPI_Info_set(*out, "romio_cb_write", mode_name(h->cb_write));
    rc |= PMPI_Info_set(*out, "sluice_shared_pointer", h->rma ? "rma" : "automatic");
    rc |= PMPI_Info_set(*out, "sluice_cache", h->direct ? "direct" : "cached");
    if (*h->pool)
        rc |= PMPI_Info_set(*out, "sluice_pool", h->pool);
    return rc == MPI_SUCCESS ? rc : MPI_ERR_INFO;
}
