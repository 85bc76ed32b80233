/* The two inner loops of reading XPlane: from event to event, and what each event says.

The compiled twins of `_walk` in chain.py and `_columns` in events.py: what both do for every event
and every stat, one after the other, instead of many at once. What is out of the ordinary they leave
as those do: a walk ends before it, an event is marked as odd, and Python goes on field by field.
tests/traces/test_xplane_scan.py compares them.
*/
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* Tags: of an event in a line, and of a stat in an event; of fields of an event, and of a stat. */
enum { EVENT = 0x22, STAT = 0x22, ID = 0x08, OFFSET = 0x10, DURATION = 0x18 };
enum { UINT = 0x18, INT = 0x20, STRING = 0x2A, REF = 0x38 };
/* As stats.py and odd.py have them. */
#define NONE INT64_MIN
#define MOST_STATS 256
#define MOST_IDS 16

typedef const uint8_t *Place;

#if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
/* Read a number of eight bytes at most, at once: times have five and more. */
static int word(Place p, int64_t *found) {
    uint64_t x, stops;
    int size;
    memcpy(&x, p, 8);
    if (!(stops = ~x & 0x8080808080808080ull))
        return 0;
    size = (__builtin_ctzll(stops) >> 3) + 1;
    x &= (stops ^ (stops - 1)) & 0x7F7F7F7F7F7F7F7Full;
    x = (x & 0x007F007F007F007Full) | (x & 0x7F007F007F007F00ull) >> 1;
    x = (x & 0x00003FFF00003FFFull) | (x & 0x3FFF00003FFF0000ull) >> 2;
    *found = (int64_t)((x & 0x000000000FFFFFFFull) | (x & 0x0FFFFFFF00000000ull) >> 4);
    return size;
}
#define WORDS(most, room) ((most) == 8 && (room) >= 8)
#else
#define word(p, found) 0
#define WORDS(most, room) 0
#endif

/* Read a number of so many bytes at most; return its size, 0 where it does not end. */
static inline int number(Place p, Place end, int most, int64_t *found) {
    uint64_t x = 0;
    int i;
    if (p < end && *p < 0x80) {
        *found = *p;
        return 1;
    }
    if (WORDS(most, end - p))
        return word(p, found);
    for (i = 0; i < most && p + i < end; i++) {
        x |= (uint64_t)(p[i] & 0x7F) << (7 * i);
        if (p[i] < 0x80) {
            *found = (int64_t)x;
            return i + 1;
        }
    }
    return 0;
}

/* ------------------------------------------------------------------ from event to event */

typedef struct {
    Place data;
    int64_t *bodies, *ends;
    Py_ssize_t row, room;
} Walk;

/* Note events as long as they are plain; return where the walk ends. */
static Place walk(Walk *w, Place p, Place end) {
    int64_t length;
    int size;
    while (p < end && *p == EVENT && w->row < w->room) {
        if (!(size = number(p + 1, end, 4, &length)) || length > end - (p + 1 + size))
            break;
        p += 1 + size;
        w->bodies[w->row] = p - w->data;
        p += length;
        w->ends[w->row++] = p - w->data;
    }
    return p;
}

/* ------------------------------------------------------------------ what an event says */

typedef struct {
    int64_t id[MOST_IDS];
    uint64_t some; /* a bit for each id by its last bits: most stats are not wanted */
    int numbers, ids;
} Wanted;

typedef struct {
    Place data, limit;
    int64_t *name, *start, *duration;
    int64_t *stats; /* a row of `rows` for each id */
    Py_ssize_t rows;
} Columns;

/* A number that may not be there, in which case it is 0; NULL: it is odd. */
static Place optional(Place p, Place end, uint8_t tag, int64_t *found) {
    int size;
    *found = 0;
    if (p >= end || *p != tag)
        return p;
    size = number(p + 1, end, 8, found);
    return size ? p + 1 + size : NULL;
}

static int64_t value(const Columns *c, Place tag, int is_number) {
    int64_t found = -1;
    if (is_number) {
        if ((*tag == UINT || *tag == INT) && !number(tag + 1, c->limit, 8, &found))
            found = -1;
        return found;
    }
    if (*tag == STRING)
        return -2 - (tag - c->data);
    if (*tag != REF)
        return NONE;
    return number(tag + 1, c->limit, 8, &found) ? found : -1;
}

static void take(const Columns *c, const Wanted *w, Py_ssize_t row, int64_t key, Place tag) {
    int i;
    for (i = 0; i < w->ids; i++)
        if (w->id[i] == key)
            c->stats[i * c->rows + row] = value(c, tag, i < w->numbers);
}

/* Read one event; 0: it is odd. */
static int event(const Columns *c, const Wanted *w, Py_ssize_t row, Place p, Place end) {
    int64_t length, key;
    int i, size, stats;
    for (i = 0; i < w->ids; i++)
        c->stats[i * c->rows + row] = i < w->numbers ? -1 : NONE;
    if (!(p = optional(p, end, ID, &c->name[row])) ||
        !(p = optional(p, end, OFFSET, &c->start[row])) ||
        !(p = optional(p, end, DURATION, &c->duration[row])))
        return 0;
    for (stats = 0; p < end; stats++) {
        Place stop;
        if (stats == MOST_STATS || *p != STAT || !(size = number(p + 1, end, 2, &length)))
            return 0;
        p += 1 + size;
        if (length > end - p)
            return 0;
        stop = p + length;
        if (p >= stop || *p != ID || !(size = number(p + 1, stop, 3, &key)) || p + 1 + size >= stop)
            return 0;
        if (w->some >> (key & 63) & 1)
            take(c, w, row, key, p + 1 + size);
        p = stop;
    }
    return 1;
}

/* ------------------------------------------------------------------ for Python */

enum { DATA, BODIES, ENDS, NAME, START, LENGTHS, STATS, ODD, ARRAYS };

static void release(Py_buffer *views, int count) {
    while (count--)
        PyBuffer_Release(&views[count]);
}

/* Open arrays, the first one to be read; all others to be written. */
static int opened(PyObject **given, Py_buffer *views, int count) {
    int i;
    for (i = 0; i < count; i++)
        if (PyObject_GetBuffer(given[i], &views[i], i ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0) {
            release(views, i);
            return 0;
        }
    return 1;
}

static PyObject *scan_walk(PyObject *module, PyObject *args) {
    PyObject *given[3];
    Py_buffer views[3];
    Py_ssize_t at, end, row;
    Walk w;
    Place stop = NULL;
    int fine;
    (void)module;
    if (!PyArg_ParseTuple(args, "OnnOOn", &given[0], &at, &end, &given[1], &given[2], &row) ||
        !opened(given, views, 3))
        return NULL;
    w.data = views[0].buf;
    w.bodies = views[1].buf;
    w.ends = views[2].buf;
    w.room = (views[1].len < views[2].len ? views[1].len : views[2].len) / 8;
    w.row = row;
    fine = 0 <= at && at <= end && end <= views[0].len && 0 <= row && row <= w.room;
    if (fine) {
        Py_BEGIN_ALLOW_THREADS
        stop = walk(&w, w.data + at, w.data + end);
        Py_END_ALLOW_THREADS
    }
    release(views, 3);
    if (!fine) {
        PyErr_SetString(PyExc_ValueError, "a walk outside the buffer");
        return NULL;
    }
    return Py_BuildValue("nn", w.row, (Py_ssize_t)(stop - w.data));
}

/* Ids are many or few, and any number: those that do not fit 64 bits no event has. */
static int add_ids(Wanted *w, PyObject *given) {
    Py_ssize_t i, n = PyTuple_Size(given);
    if (n < 0)
        return 0;
    for (i = 0; i < n; i++) {
        long long id = PyLong_AsLongLong(PyTuple_GetItem(given, i));
        if (id == -1 && PyErr_Occurred())
            return 0;
        if (w->ids == MOST_IDS) {
            PyErr_SetString(PyExc_ValueError, "too many stats");
            return 0;
        }
        w->id[w->ids++] = id;
        w->some |= (uint64_t)1 << (id & 63);
    }
    return 1;
}

static int inside(const int64_t *bodies, const int64_t *ends, Py_ssize_t rows, Py_ssize_t size) {
    Py_ssize_t i;
    for (i = 0; i < rows; i++)
        if (bodies[i] < 0 || bodies[i] > ends[i] || ends[i] > size)
            return 0;
    return 1;
}

static PyObject *scan_decode(PyObject *module, PyObject *args) {
    PyObject *given[ARRAYS], *numbers, *texts;
    Py_buffer views[ARRAYS];
    Wanted w = {{0}, 0, 0, 0};
    Columns c;
    const int64_t *bodies, *ends;
    uint8_t *odd;
    Py_ssize_t i, found = 0;
    int fine;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOO!O!OOOOO", &given[DATA], &given[BODIES], &given[ENDS],
                          &PyTuple_Type, &numbers, &PyTuple_Type, &texts, &given[NAME],
                          &given[START], &given[LENGTHS], &given[STATS], &given[ODD]) ||
        !add_ids(&w, numbers))
        return NULL;
    w.numbers = w.ids;
    if (!add_ids(&w, texts) || !opened(given, views, ARRAYS))
        return NULL;
    bodies = views[BODIES].buf;
    ends = views[ENDS].buf;
    odd = views[ODD].buf;
    c.data = views[DATA].buf;
    c.limit = c.data + views[DATA].len;
    c.name = views[NAME].buf;
    c.start = views[START].buf;
    c.duration = views[LENGTHS].buf;
    c.stats = views[STATS].buf;
    c.rows = views[ODD].len;
    fine = views[STATS].len == c.rows * 8 * w.ids;
    for (i = BODIES; i < STATS; i++)
        fine = fine && views[i].len == c.rows * 8;
    fine = fine && inside(bodies, ends, c.rows, views[DATA].len);
    if (fine) {
        Py_BEGIN_ALLOW_THREADS
        for (i = 0; i < c.rows; i++) {
            odd[i] = !event(&c, &w, i, c.data + bodies[i], c.data + ends[i]);
            found += odd[i];
        }
        Py_END_ALLOW_THREADS
    }
    release(views, ARRAYS);
    if (!fine) {
        PyErr_SetString(PyExc_ValueError, "columns of other lengths, or events outside the buffer");
        return NULL;
    }
    return PyLong_FromSsize_t(found);
}

static PyMethodDef methods[] = {
    {"walk", scan_walk, METH_VARARGS,
     "Note where events begin and end, from row on; return the next row, and where that ended."},
    {"decode", scan_decode, METH_VARARGS,
     "Fill columns with what events say; return how many of them are odd."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_scan", "Events of XPlane as columns.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__scan(void) { return PyModule_Create(&module); }
