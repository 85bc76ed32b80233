/* Sorted lines and intervals, one entry after the other: compiled twins of functions in intervals.py.

NumPy can only do such things for all rows at once, several times over, and by sorting; here each
row is seen once. tests/traces/test_intervals.py compares both.
*/
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define LABELS 128
#define MOST_RUNS 8

/* ------------------------------------------------------------------ sweep */

/* Spans, and those of them that count, in order. */
typedef struct {
    const int64_t *start, *end;
    const int32_t *row;
    const int8_t *label;
    Py_ssize_t rows, spans;
} Spans;

/* Until when each label is open, and a bit for each that may still be. */
typedef struct {
    int64_t until[LABELS];
    uint64_t open[LABELS / 64];
    int8_t none;
    int64_t *time;
    int8_t *label;
    Py_ssize_t rows;
} Sweep;

static void put(Sweep *s, int64_t time, int label) {
    if (s->rows && s->time[s->rows - 1] == time) {
        /* Of what begins together the last one says it all; it may be what held before. */
        s->rows--;
    }
    if (s->rows && s->label[s->rows - 1] == label)
        return;
    s->time[s->rows] = time;
    s->label[s->rows++] = (int8_t)label;
}

/* The number of the lowest bit. */
#if defined(__GNUC__)
#define first(bits) __builtin_ctzll(bits)
#else
static int first(uint64_t bits) {
    int number = 0;
    for (; !(bits & 1); bits >>= 1)
        number++;
    return number;
}
#endif

/* The lowest label that is open at a time; those that have ended are forgotten. */
static int lowest(Sweep *s, int64_t time) {
    int word;
    for (word = 0; word < LABELS / 64; word++)
        while (s->open[word]) {
            int label = word * 64 + first(s->open[word]);
            if (s->until[label] > time)
                return label;
            s->open[word] &= s->open[word] - 1;
        }
    return s->none;
}

/* Note what ends before a time. */
static void pass(Sweep *s, int64_t time) {
    for (;;) {
        int held = s->rows ? s->label[s->rows - 1] : s->none;
        if (held == s->none || s->until[held] > time)
            return;
        put(s, s->until[held], lowest(s, s->until[held]));
    }
}

static void sweep(Sweep *s, const Spans *of) {
    const int64_t *start = of->start, *end = of->end;
    Py_ssize_t at;
    for (at = 0; at < of->rows; at++) {
        int64_t i = of->row[at];
        int mine = of->label[i];
        if (end[i] <= start[i])
            continue;
        pass(s, start[i]);
        if (mine != s->none) {
            uint64_t bit = (uint64_t)1 << (mine & 63);
            if (!(s->open[mine >> 6] & bit) || s->until[mine] < end[i])
                s->until[mine] = end[i];
            s->open[mine >> 6] |= bit;
        }
        if (!s->rows || mine != s->none)
            put(s, start[i], lowest(s, start[i]));
    }
    pass(s, INT64_MAX);
}

/* ------------------------------------------------------------------ aligned */

typedef struct {
    const int64_t *time;
    Py_ssize_t rows, next;
} Run;

static Py_ssize_t merge(Run *runs, int count, int64_t *times, int32_t *rows, Py_ssize_t room) {
    Py_ssize_t found = 0;
    for (;;) {
        int64_t time = 0;
        int i, some = 0;
        for (i = 0; i < count; i++)
            if (runs[i].next < runs[i].rows) {
                int64_t next = runs[i].time[runs[i].next];
                if (!some || next < time)
                    time = next;
                some = 1;
            }
        if (!some)
            return found;
        for (i = 0; i < count; i++) {
            Run *r = &runs[i];
            while (r->next < r->rows && r->time[r->next] == time)
                r->next++;
            rows[i * room + found] = (int32_t)(r->next - 1);
        }
        times[found++] = time;
    }
}

/* ------------------------------------------------------------------ blended */

typedef struct {
    const int64_t *time;
    const int8_t *label;
    Py_ssize_t rows;
} Line;

/* Merge two lines; the table has a label for each pair of theirs, `labels` in a row. */
static Py_ssize_t blend(const Line *one, const Line *other, const int8_t *table, Py_ssize_t labels,
                        int none, int64_t *time, int8_t *label) {
    Py_ssize_t i = 0, j = 0, found = 0;
    int first = none, second = none;
    while (i < one->rows || j < other->rows) {
        int64_t now;
        int8_t both;
        if (j >= other->rows || (i < one->rows && one->time[i] <= other->time[j]))
            now = one->time[i];
        else
            now = other->time[j];
        while (i < one->rows && one->time[i] == now)
            first = one->label[i++];
        while (j < other->rows && other->time[j] == now)
            second = other->label[j++];
        both = table[first * labels + second];
        if (!found || label[found - 1] != both) {
            time[found] = now;
            label[found++] = both;
        }
    }
    return found;
}

/* ------------------------------------------------------------------ following */

/* For each of some sorted times, how many of other sorted ones are earlier. */
static void following(const Run *of, const Run *times, int32_t *rows) {
    Py_ssize_t i, next = 0;
    for (i = 0; i < times->rows; i++) {
        if (i && times->time[i] < times->time[i - 1])
            next = 0;
        while (next < of->rows && of->time[next] < times->time[i])
            next++;
        rows[i] = (int32_t)next;
    }
}

/* ------------------------------------------------------------------ tally */

/* Add to each label what its segments have between two times. */
static void tally(const Spans *of, int64_t begin, int64_t stop, int64_t *ticks) {
    Py_ssize_t i;
    for (i = 0; i < of->spans; i++) {
        int64_t start = of->start[i] > begin ? of->start[i] : begin;
        int64_t end = of->end[i] < stop ? of->end[i] : stop;
        ticks[of->label[i]] += end > start ? end - start : 0;
    }
}

/* ------------------------------------------------------------------ for Python */

static void release(Py_buffer *views, int count) {
    while (count--)
        PyBuffer_Release(&views[count]);
}

/* Open arrays; from `written` on to be written. */
static int opened(PyObject **given, Py_buffer *views, int count, int written) {
    int i;
    for (i = 0; i < count; i++)
        if (PyObject_GetBuffer(given[i], &views[i], i < written ? PyBUF_SIMPLE : PyBUF_WRITABLE)) {
            release(views, i);
            return 0;
        }
    return 1;
}

static PyObject *wrong(void) {
    PyErr_SetString(PyExc_ValueError, "columns of other lengths, or none that is no label");
    return NULL;
}

/* Whether starts come sorted, and labels are known: else a line might have more rows than room. */
static int sound(const Spans *of) {
    int64_t before = INT64_MIN;
    Py_ssize_t i;
    for (i = 0; i < of->rows; i++) {
        int64_t row = of->row[i];
        if (row < 0 || row >= of->spans || of->label[row] < 0 || of->start[row] < before)
            return 0;
        before = of->start[row];
    }
    return 1;
}

/* Take starts, ends and labels from three views; 0: they are of other lengths. */
static int spans(Spans *of, const Py_buffer *views) {
    of->start = views[0].buf;
    of->end = views[1].buf;
    of->label = views[2].buf;
    of->spans = views[2].len;
    return views[0].len == of->spans * 8 && views[1].len == of->spans * 8;
}

static PyObject *intervals_sweep(PyObject *module, PyObject *args) {
    PyObject *given[6];
    Py_buffer views[6];
    Sweep s;
    Spans of;
    int none, fine, sorted;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOOiOO", &given[0], &given[1], &given[2], &given[3], &none, &given[4],
                          &given[5]) ||
        !opened(given, views, 6, 4))
        return NULL;
    of.row = views[3].buf;
    of.rows = views[3].len / 4;
    fine = spans(&of, views) && 0 <= none && none < LABELS && views[4].len >= of.rows * 16 &&
           views[5].len >= of.rows * 2;
    sorted = fine && sound(&of);
    memset(&s, 0, sizeof s);
    if (sorted) {
        s.none = (int8_t)none;
        s.time = views[4].buf;
        s.label = views[5].buf;
        Py_BEGIN_ALLOW_THREADS
        sweep(&s, &of);
        Py_END_ALLOW_THREADS
    }
    release(views, 6);
    return fine ? PyLong_FromSsize_t(sorted ? s.rows : -1) : wrong();
}

static PyObject *intervals_aligned(PyObject *module, PyObject *args) {
    PyObject *given[MOST_RUNS + 2], *tuple;
    Py_buffer views[MOST_RUNS + 2];
    Run runs[MOST_RUNS];
    Py_ssize_t i, count, room = 0, found = 0;
    int fine;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!OO", &PyTuple_Type, &tuple, &given[MOST_RUNS], &given[MOST_RUNS + 1]))
        return NULL;
    count = PyTuple_Size(tuple);
    if (count > MOST_RUNS) {
        PyErr_SetString(PyExc_ValueError, "too many runs");
        return NULL;
    }
    for (i = 0; i < count; i++)
        given[i] = PyTuple_GetItem(tuple, i);
    given[count] = given[MOST_RUNS];
    given[count + 1] = given[MOST_RUNS + 1];
    if (!opened(given, views, (int)count + 2, (int)count))
        return NULL;
    for (i = 0; i < count; i++) {
        runs[i].time = views[i].buf;
        runs[i].rows = views[i].len / 8;
        runs[i].next = 0;
        room += runs[i].rows;
    }
    fine = views[count].len == room * 8 && views[count + 1].len == room * 4 * count && room < INT32_MAX;
    if (fine) {
        Py_BEGIN_ALLOW_THREADS
        found = merge(runs, (int)count, views[count].buf, views[count + 1].buf, room);
        Py_END_ALLOW_THREADS
    }
    release(views, (int)count + 2);
    return fine ? PyLong_FromSsize_t(found) : wrong();
}

static PyObject *intervals_tally(PyObject *module, PyObject *args) {
    PyObject *given[4];
    Py_buffer views[4];
    Spans of;
    long long begin, stop;
    Py_ssize_t i;
    int fine;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOLLO", &given[0], &given[1], &given[2], &begin, &stop, &given[3]) ||
        !opened(given, views, 4, 3))
        return NULL;
    fine = spans(&of, views);
    for (i = 0; fine && i < of.spans; i++)
        fine = 0 <= of.label[i] && of.label[i] < views[3].len / 8;
    if (fine) {
        Py_BEGIN_ALLOW_THREADS
        tally(&of, begin, stop, views[3].buf);
        Py_END_ALLOW_THREADS
    }
    release(views, 4);
    if (!fine)
        return wrong();
    Py_RETURN_NONE;
}

static PyObject *intervals_following(PyObject *module, PyObject *args) {
    PyObject *given[3];
    Py_buffer views[3];
    Run runs[2];
    Py_ssize_t i;
    int fine;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOO", &given[0], &given[1], &given[2]) || !opened(given, views, 3, 2))
        return NULL;
    for (i = 0; i < 2; i++) {
        runs[i].time = views[i].buf;
        runs[i].rows = views[i].len / 8;
    }
    fine = views[2].len == runs[1].rows * 4 && runs[0].rows < INT32_MAX;
    if (fine) {
        Py_BEGIN_ALLOW_THREADS
        following(&runs[0], &runs[1], views[2].buf);
        Py_END_ALLOW_THREADS
    }
    release(views, 3);
    if (!fine)
        return wrong();
    Py_RETURN_NONE;
}

static int labels_below(const Line *line, Py_ssize_t labels) {
    Py_ssize_t i;
    for (i = 0; i < line->rows; i++)
        if (line->label[i] < 0 || line->label[i] >= labels)
            return 0;
    return 1;
}

static PyObject *intervals_blended(PyObject *module, PyObject *args) {
    PyObject *given[7];
    Py_buffer views[7];
    Line lines[2];
    Py_ssize_t i, labels, found = 0;
    int none, fine;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOOOniOO", &given[0], &given[1], &given[2], &given[3], &given[4], &labels,
                          &none, &given[5], &given[6]) ||
        !opened(given, views, 7, 5))
        return NULL;
    for (i = 0; i < 2; i++) {
        lines[i].time = views[2 * i].buf;
        lines[i].label = views[2 * i + 1].buf;
        lines[i].rows = views[2 * i + 1].len;
    }
    fine = 0 < labels && labels <= LABELS && 0 <= none && none < labels && views[4].len == labels * labels &&
           views[0].len == lines[0].rows * 8 && views[2].len == lines[1].rows * 8 &&
           views[5].len >= (lines[0].rows + lines[1].rows) * 8 &&
           views[6].len >= lines[0].rows + lines[1].rows && labels_below(&lines[0], labels) &&
           labels_below(&lines[1], labels);
    if (fine) {
        Py_BEGIN_ALLOW_THREADS
        found = blend(&lines[0], &lines[1], views[4].buf, labels, none, views[5].buf, views[6].buf);
        Py_END_ALLOW_THREADS
    }
    release(views, 7);
    return fine ? PyLong_FromSsize_t(found) : wrong();
}

static PyMethodDef methods[] = {
    {"blended", intervals_blended, METH_VARARGS, "Merge two lines by a table of labels; return the length of the new one."},
    {"following", intervals_following, METH_VARARGS, "Fill, for each sorted time, how many of a run are earlier."},
    {"tally", intervals_tally, METH_VARARGS, "Add to each label what its segments have between two times."},
    {"sweep", intervals_sweep, METH_VARARGS, "Fill a line with the lowest label that is open; return its length, -1: it is not for us."},
    {"aligned", intervals_aligned, METH_VARARGS, "Merge sorted runs; return how many distinct times there are."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_intervals", "Arithmetic on sorted intervals.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__intervals(void) { return PyModule_Create(&module); }
