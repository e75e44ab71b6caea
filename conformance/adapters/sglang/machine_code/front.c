/* What every step of a scheduler does, read in machine code: it stands in for steps.py while one batch only decodes.
 *
 * In a server the caches are cold when a step is read, and what is cold costs by the line of cache. So this is small: it knows the
 * one thing that happens again and again, and writes it down as steps.py would, packed as `marshal` packs it. Whatever else
 * happens, steps.py takes over (`leave`) with all that is known here, and hands on again (`enter`) when a batch decodes.
 * An error is raised as in Python; nothing here is freed or written that is not its own.
 */
#include "packing.h"
#include "reading.h"

#define STEPS_OF_A_RUN 32

typedef struct {
    PyObject_HEAD
    PyObject *prepared, *come, *came; /* of steps.py: for all that is not done here */
    PyObject *put_run;                /* takes what was packed */
    PyObject *step;                   /* tells the number of the scheduler's step */
    int reading;                      /* the attributes of a step */
    int way, names_pages;             /* names_pages: ids of pages are on the host, and of one pool */
    long page_size;
    PyObject *reqs;                   /* the batch, or NULL while steps.py is in charge */
    PyObject *awaiting;               /* the list whose results are being processed, or NULL */
    Py_ssize_t count;                 /* requests of the batch */
    long steps_to_opening, period;    /* until a page begins, from now and from when `seq_lens` were read */
    int32_t *told, *lens, *fresh;     /* output lengths: as packed, as read last, as being read */
    int32_t *seq_lens;                /* lengths when a page began last */
    int has_gained;                   /* `lens` came in step `gained_step`, and that is not packed yet */
    long gained_step;
    Packed packed;
} Front;

static int read_step(Front *self, long *step) {
    PyObject *number = PyObject_CallNoArgs(self->step);
    if (number == NULL) return -1;
    int failed = narrow(number, step);
    Py_DECREF(number);
    return failed;
}

/* Reading an attribute may run anything. Whoever comes back here by that is refused: what is begun is not disturbed. */
static int is_reading(Front *self) {
    if (self->reading) PyErr_SetString(PyExc_RuntimeError, "a step is just being read");
    return self->reading;
}

/* Whether these are the requests of the batch, in its order. */
static int is_same(Front *self, PyObject *reqs) {
    if (self->reqs == NULL || !PyList_CheckExact(reqs) || PyList_GET_SIZE(reqs) != self->count) return 0;
    for (Py_ssize_t n = 0; n < self->count; n++)
        if (PyList_GET_ITEM(reqs, n) != PyList_GET_ITEM(self->reqs, n)) return 0;
    return 1;
}

/* -- what was packed goes on -- */

static PyObject *list_of(const int32_t *numbers, Py_ssize_t count) {
    PyObject *list = PyList_New(count);
    for (Py_ssize_t n = 0; list != NULL && n < count; n++) {
        PyObject *number = PyLong_FromLong(numbers[n]);
        if (number == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, n, number);
    }
    return list;
}

/* (records, events, output lengths after them, bytes), or None. */
static PyObject *take_run(Front *self) {
    if (self->packed.records == 0) Py_RETURN_NONE;
    PyObject *lens = list_of(self->told, self->count);
    if (lens == NULL) return NULL;
    PyObject *run = Py_BuildValue("(llNy#)", self->packed.records, self->packed.events, lens, (const char *)self->packed.bytes,
                                  (Py_ssize_t)self->packed.len);
    if (run != NULL) {
        self->packed.len = 0;
        self->packed.records = self->packed.events = 0;
    }
    return run;
}

static int hand_over(Front *self) {
    PyObject *run = take_run(self);
    if (run == NULL) return -1;
    PyObject *done = run == Py_None ? Py_NewRef(Py_None) : PyObject_CallOneArg(self->put_run, run);
    Py_DECREF(run);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static PyObject *front_take(Front *self, PyObject *Py_UNUSED(none)) {
    if (self->reading) Py_RETURN_NONE; /* the next one takes it */
    return take_run(self);
}

/* -- what every step does -- */

static long tell_gained(Front *self) {
    long events = 0;
    for (Py_ssize_t n = 0; n < self->count; n++) events += self->told[n] != self->lens[n];
    memcpy(self->told, self->lens, (size_t)self->count * sizeof *self->told);
    self->has_gained = 0;
    return events;
}

/* ("gained", step, lens): a result that no step of the batch came behind. */
static int pack_gained(Front *self) {
    unsigned char *at = room_for(&self->packed, 32 + (size_t)self->count * INT_BYTES);
    if (at == NULL) return -1;
    at = put_int(put_name(put_tuple(at, 3), "gained"), self->gained_step);
    at = put_lens(at, self->lens, self->count);
    wrote(&self->packed, at, tell_gained(self));
    return 0;
}

/* As `Openings.after`: lengths that are not what was counted would mean pages that were missed. */
static int read_opening(Front *self, PyObject *batch) {
    int32_t *now = self->fresh;
    if (read_tensor(batch, s_seq_lens_cpu, self->count, now)) return -1;
    long furthest = 0;
    for (Py_ssize_t n = 0; n < self->count; n++) {
        long offset = (now[n] - 1) % self->page_size;
        if (now[n] != self->seq_lens[n] + self->period) {
            PyErr_Format(PyExc_RuntimeError, "%ld decode steps after length %d a request has %d: pages may have been missed",
                         self->period, (int)self->seq_lens[n], (int)now[n]);
            return -1;
        }
        if (offset > furthest) furthest = offset;
    }
    memcpy(self->seq_lens, now, (size_t)self->count * sizeof *now);
    self->period = self->steps_to_opening = self->page_size - furthest;
    return 0;
}

/* ("again", step, [(C, A, R)], (step, lens) or None), and where a page begins: lengths, or None for pages of one token; the page
 * of each; None. */
static int pack_again(Front *self, PyObject *batch, int opens) {
    long step, committed, allocated, held;
    if (read_step(self, &step)) return -1;
    unsigned char *at = room_for(&self->packed, 64 + (size_t)self->count * (2 + 6 * INT_BYTES));
    if (at == NULL) return -1;
    at = put_int(put_name(put_tuple(at, opens ? 7 : 4), "again"), step);
    at = put_size(at, '[', self->count);
    for (Py_ssize_t n = 0; n < self->count; n++) {
        if (read_lengths(self->way, PyList_GET_ITEM(self->reqs, n), &committed, &allocated, &held)) return -1;
        at = put_int(put_int(put_int(put_tuple(at, 3), committed), allocated), held);
    }
    if (self->has_gained)
        at = put_lens(put_int(put_tuple(at, 2), self->gained_step), self->lens, self->count);
    else
        *at++ = 'N';
    if (opens) {
        if (self->page_size == 1)
            *at++ = 'N';
        else {
            if (read_opening(self, batch)) return -1;
            at = put_lens(at, self->seq_lens, self->count);
        }
        if (read_tensor(batch, s_out_cache_loc, self->count, self->fresh)) return -1;
        for (Py_ssize_t n = 0; n < self->count; n++) self->fresh[n] /= (int32_t)self->page_size;
        at = put_lens(at, self->fresh, self->count);
        *at++ = 'N';
    }
    long gained = self->has_gained ? tell_gained(self) : 0;
    wrote(&self->packed, at, gained + (long)self->count);
    return 0;
}

/* After `prepare_for_decode(batch)`. */
static PyObject *front_prepared(Front *self, PyObject *batch) {
    if (is_reading(self)) return NULL;
    if (self->reqs == NULL) return PyObject_CallOneArg(self->prepared, batch);
    PyObject *reqs = PyObject_GetAttr(batch, s_reqs);
    if (reqs == NULL) return NULL;
    int same = is_same(self, reqs);
    Py_DECREF(reqs);
    int opens = self->steps_to_opening <= 1;
    if (!same || (opens && !self->names_pages)) return PyObject_CallOneArg(self->prepared, batch);
    self->steps_to_opening -= !opens;
    self->reading = 1;
    int failed = pack_again(self, batch, opens);
    self->reading = 0;
    if (failed) return NULL;
    if (self->packed.records >= STEPS_OF_A_RUN && hand_over(self)) return NULL;
    Py_RETURN_NONE;
}

static PyObject *of_steps(PyObject *listener, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    return PyObject_Vectorcall(listener, args, (size_t)count, names);
}

/* Before `process_batch_result(scheduler, batch, ...)`. */
static PyObject *front_come(Front *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    if (is_reading(self)) return NULL;
    if (self->reqs == NULL || count < 2) return of_steps(self->come, args, count, names);
    PyObject *reqs = PyObject_GetAttr(args[1], s_reqs);
    if (reqs == NULL) return NULL;
    if (!is_same(self, reqs)) {
        Py_DECREF(reqs);
        return of_steps(self->come, args, count, names);
    }
    Py_XSETREF(self->awaiting, reqs);
    Py_RETURN_NONE;
}

/* Into `fresh`; 1: another length than was read last, 0: none, -1: an error. */
static int read_output_lens(Front *self) {
    int gained = 0;
    for (Py_ssize_t n = 0; n < self->count; n++) {
        PyObject *ids = PyObject_GetAttr(PyList_GET_ITEM(self->reqs, n), s_output_ids);
        if (ids == NULL) return -1;
        Py_ssize_t len = PyList_CheckExact(ids) ? PyList_GET_SIZE(ids) : PyObject_Size(ids);
        Py_DECREF(ids);
        if (len < 0) return -1;
        self->fresh[n] = (int32_t)len;
        gained |= self->fresh[n] != self->lens[n];
    }
    return gained;
}

/* After it, if nothing else happened in between. */
static PyObject *front_came(Front *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    if (is_reading(self)) return NULL;
    if (self->reqs == NULL || self->awaiting == NULL) return of_steps(self->came, args, count, names);
    long step = 0;
    self->reading = 1;
    int gained = read_output_lens(self);
    int failed = gained < 0 || (gained && read_step(self, &step));
    self->reading = 0;
    if (failed) return NULL;
    Py_CLEAR(self->awaiting);
    if (!gained) Py_RETURN_NONE;
    if (self->has_gained && pack_gained(self)) return NULL;
    memcpy(self->lens, self->fresh, (size_t)self->count * sizeof *self->lens);
    self->has_gained = 1;
    self->gained_step = step;
    Py_RETURN_NONE;
}

/* -- steps.py hands on and takes over -- */

static int fill(int32_t *numbers, PyObject *list, Py_ssize_t count) {
    for (Py_ssize_t n = 0; n < count; n++) {
        long number;
        if (narrow(PyList_GET_ITEM(list, n), &number)) return -1;
        numbers[n] = (int32_t)number;
    }
    return 0;
}

/* enter(reqs, output_lens, steps_to_opening, seq_lens, period): this batch was put down, nothing waits; its next steps are read
 * here. `seq_lens`: when a page began last, or the batch did; `period`: so many steps after that the next one begins. */
static PyObject *front_enter(Front *self, PyObject *args) {
    PyObject *reqs, *lens, *seq_lens;
    long steps_to_opening, period;
    if (is_reading(self)) return NULL;
    if (!PyArg_ParseTuple(args, "O!O!lO!l", &PyList_Type, &reqs, &PyList_Type, &lens, &steps_to_opening, &PyList_Type, &seq_lens,
                          &period))
        return NULL;
    Py_ssize_t count = PyList_GET_SIZE(reqs);
    if (PyList_GET_SIZE(lens) != count || PyList_GET_SIZE(seq_lens) != count) {
        PyErr_SetString(PyExc_ValueError, "a batch has not one length for each request");
        return NULL;
    }
    int32_t *room = PyMem_Realloc(self->told, 4 * (size_t)(count ? count : 1) * sizeof *room);
    if (room == NULL) return PyErr_NoMemory();
    self->told = room;
    self->lens = room + count;
    self->fresh = room + 2 * count;
    self->seq_lens = room + 3 * count;
    if (fill(self->told, lens, count) || fill(self->lens, lens, count) || fill(self->seq_lens, seq_lens, count)) return NULL;
    self->count = count;
    self->steps_to_opening = steps_to_opening;
    self->period = period;
    self->has_gained = 0;
    Py_CLEAR(self->awaiting);
    Py_XSETREF(self->reqs, Py_NewRef(reqs));
    Py_RETURN_NONE;
}

/* None, or (output_lens, steps_to_opening, seq_lens, period, step of the result that waits or None, reqs whose results are awaited
 * or None). */
static PyObject *front_leave(Front *self, PyObject *Py_UNUSED(none)) {
    if (is_reading(self)) return NULL;
    if (self->reqs == NULL) Py_RETURN_NONE;
    if (hand_over(self)) return NULL;
    PyObject *lens = list_of(self->lens, self->count), *seq_lens = list_of(self->seq_lens, self->count);
    PyObject *gained = self->has_gained ? PyLong_FromLong(self->gained_step) : Py_NewRef(Py_None);
    if (lens == NULL || seq_lens == NULL || gained == NULL) {
        Py_XDECREF(lens);
        Py_XDECREF(seq_lens);
        Py_XDECREF(gained);
        return NULL;
    }
    PyObject *awaiting = self->awaiting != NULL ? self->awaiting : Py_NewRef(Py_None);
    self->awaiting = NULL;
    Py_CLEAR(self->reqs);
    return Py_BuildValue("(NlNlNN)", lens, self->steps_to_opening, seq_lens, self->period, gained, awaiting);
}

/* -- the type -- */

/* Front(prepared, come, came, put_run, step, way, names_pages, page_size) */
static int front_init(Front *self, PyObject *args, PyObject *Py_UNUSED(names)) {
    PyObject *prepared, *come, *came, *put_run, *step;
    if (!PyArg_ParseTuple(args, "OOOOOipl", &prepared, &come, &came, &put_run, &step, &self->way, &self->names_pages,
                          &self->page_size))
        return -1;
    if (self->page_size < 1) {
        PyErr_SetString(PyExc_ValueError, "a page holds at least one token");
        return -1;
    }
    Py_XSETREF(self->prepared, Py_NewRef(prepared));
    Py_XSETREF(self->come, Py_NewRef(come));
    Py_XSETREF(self->came, Py_NewRef(came));
    Py_XSETREF(self->put_run, Py_NewRef(put_run));
    Py_XSETREF(self->step, Py_NewRef(step));
    return 0;
}

static int front_traverse(Front *self, visitproc visit, void *arg) {
    Py_VISIT(self->prepared);
    Py_VISIT(self->come);
    Py_VISIT(self->came);
    Py_VISIT(self->put_run);
    Py_VISIT(self->step);
    Py_VISIT(self->reqs);
    Py_VISIT(self->awaiting);
    return 0;
}

static int front_clear(Front *self) {
    Py_CLEAR(self->prepared);
    Py_CLEAR(self->come);
    Py_CLEAR(self->came);
    Py_CLEAR(self->put_run);
    Py_CLEAR(self->step);
    Py_CLEAR(self->reqs);
    Py_CLEAR(self->awaiting);
    return 0;
}

static void front_dealloc(Front *self) {
    PyObject_GC_UnTrack(self);
    front_clear(self);
    PyMem_Free(self->told);
    PyMem_Free(self->packed.bytes);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef methods[] = {
    {"prepared_for_decode", (PyCFunction)front_prepared, METH_O, NULL},
    {"results_come", (PyCFunction)(void (*)(void))front_come, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"results_came", (PyCFunction)(void (*)(void))front_came, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"enter", (PyCFunction)front_enter, METH_VARARGS, NULL},
    {"leave", (PyCFunction)front_leave, METH_NOARGS, NULL},
    {"take", (PyCFunction)front_take, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject FrontType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kvproof_front.Front",
    .tp_basicsize = sizeof(Front),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)front_init,
    .tp_traverse = (traverseproc)front_traverse,
    .tp_clear = (inquiry)front_clear,
    .tp_dealloc = (destructor)front_dealloc,
    .tp_methods = methods,
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "kvproof_front", .m_size = -1};

PyMODINIT_FUNC PyInit_kvproof_front(void) {
    if (intern_names()) return NULL;
    PyObject *made = PyModule_Create(&module);
    if (made != NULL && PyModule_AddType(made, &FrontType) < 0) Py_CLEAR(made);
    return made;
}
