/* Records as `marshal` packs them, in its version 2, which writes nothing twice by reference. */
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define INT_BYTES 5

/* What was packed and not handed over yet. */
typedef struct {
    unsigned char *bytes;
    size_t len, room;
    long records, events;
} Packed;

static unsigned char *put_int(unsigned char *at, long value) {
    int32_t narrow = (int32_t)value;
    *at++ = 'i';
    for (int byte = 0; byte < 4; byte++) *at++ = (unsigned char)((uint32_t)narrow >> (8 * byte));
    return at;
}

static unsigned char *put_size(unsigned char *at, unsigned char kind, Py_ssize_t size) {
    at = put_int(at, (long)size);
    at[-INT_BYTES] = kind;
    return at;
}

static unsigned char *put_name(unsigned char *at, const char *name) {
    size_t length = strlen(name);
    *at++ = 'z';
    *at++ = (unsigned char)length;
    memcpy(at, name, length);
    return at + length;
}

static unsigned char *put_tuple(unsigned char *at, int size) {
    *at++ = ')';
    *at++ = (unsigned char)size;
    return at;
}

static unsigned char *put_lens(unsigned char *at, const int32_t *lens, Py_ssize_t count) {
    at = put_size(at, '[', count);
    for (Py_ssize_t n = 0; n < count; n++) at = put_int(at, lens[n]);
    return at;
}

/* Where the next record begins, with that much room behind it; NULL: an error. */
static unsigned char *room_for(Packed *packed, size_t bytes) {
    if (packed->len + bytes > packed->room) {
        size_t room = 2 * (packed->len + bytes);
        unsigned char *larger = PyMem_Realloc(packed->bytes, room);
        if (larger == NULL) return (unsigned char *)PyErr_NoMemory();
        packed->bytes = larger;
        packed->room = room;
    }
    return packed->bytes + packed->len;
}

/* A record ends there, and is so many events. */
static void wrote(Packed *packed, unsigned char *end, long events) {
    packed->len = (size_t)(end - packed->bytes);
    packed->records++;
    packed->events += events;
}
