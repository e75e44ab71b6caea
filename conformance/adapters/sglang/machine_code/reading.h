/* What is read of the scheduler's requests and batches: attributes that hold whole numbers, and tensors of them. -1: an error. */
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* Where a release keeps a request's lengths (seams.py). */
enum { THEIR_OWN, BESIDE_RECORDS, IN_RECORDS };

static PyObject *s_reqs, *s_kv, *s_committed, *s_allocated, *s_protected, *s_output_ids, *s_out_cache_loc, *s_tolist,
    *s_seq_lens_cpu;

static int intern_names(void) {
    const struct {
        PyObject **at;
        const char *name;
    } names[] = {
        {&s_reqs, "reqs"},
        {&s_kv, "kv"},
        {&s_committed, "kv_committed_len"},
        {&s_allocated, "kv_allocated_len"},
        {&s_protected, "cache_protected_len"},
        {&s_output_ids, "output_ids"},
        {&s_out_cache_loc, "out_cache_loc"},
        {&s_tolist, "tolist"},
        {&s_seq_lens_cpu, "seq_lens_cpu"},
    };
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        if ((*names[n].at = PyUnicode_InternFromString(names[n].name)) == NULL) return -1;
    return 0;
}

static int narrow(PyObject *number, long *value) {
    if (!PyLong_Check(number)) {
        PyErr_Format(PyExc_TypeError, "a length is no whole number: %s", Py_TYPE(number)->tp_name);
        return -1;
    }
    *value = PyLong_AsLong(number);
    if (*value == -1 && PyErr_Occurred()) return -1;
    if (*value > INT32_MAX || *value < INT32_MIN) {
        PyErr_SetString(PyExc_OverflowError, "a length of more than 31 bits");
        return -1;
    }
    return 0;
}

static int read_long(PyObject *owner, PyObject *name, long *value) {
    PyObject *number = PyObject_GetAttr(owner, name);
    if (number == NULL) return -1;
    int failed = narrow(number, value);
    Py_DECREF(number);
    return failed;
}

static int read_lengths(int way, PyObject *req, long *committed, long *allocated, long *held) {
    if (way == THEIR_OWN)
        return read_long(req, s_committed, committed) || read_long(req, s_allocated, allocated) ||
               read_long(req, s_protected, held);
    PyObject *kv = PyObject_GetAttr(req, s_kv);
    if (kv == NULL) return -1;
    int failed;
    if (way == IN_RECORDS)
        failed = read_long(kv, s_committed, committed) || read_long(kv, s_allocated, allocated) ||
                 read_long(kv, s_protected, held);
    else {
        *allocated = 0;
        failed = read_long(req, s_committed, committed) || read_long(req, s_protected, held) ||
                 (kv != Py_None && read_long(kv, s_allocated, allocated));
    }
    Py_DECREF(kv);
    return failed ? -1 : 0;
}

/* The numbers of a tensor of the batch, one for each request, into `numbers`. */
static int read_tensor(PyObject *batch, PyObject *name, Py_ssize_t count, int32_t *numbers) {
    PyObject *tensor = PyObject_GetAttr(batch, name);
    PyObject *list = tensor == NULL ? NULL : PyObject_CallMethodNoArgs(tensor, s_tolist);
    Py_XDECREF(tensor);
    if (list == NULL) return -1;
    int failed = !PyList_CheckExact(list) || PyList_GET_SIZE(list) != count;
    if (failed) PyErr_SetString(PyExc_ValueError, "a decode step has not one number for each request");
    for (Py_ssize_t n = 0; !failed && n < count; n++) {
        long number = 0;
        failed = narrow(PyList_GET_ITEM(list, n), &number);
        numbers[n] = (int32_t)number;
    }
    Py_DECREF(list);
    return failed ? -1 : 0;
}
