/* Lists of Kineto events -> columns: the compiled twin of record.py and rows.py.

It takes only what it is sure of. A piece of text with anything out of the ordinary (a number as
text, a key twice, a type that should not be, an escape where none is needed, damage) is refused as
a whole, with nothing kept, and the reader in Python takes it. So this file never repairs, rounds
or guesses, and what it accepts means the same to both; tests/traces/test_kineto_scan.py compares
them.

Text is interned as it stands in the file, quotes and escapes included: Python decodes a name when
it comes for the first time, and no more.
*/
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define DEEPEST 64
#define MOST_PROBES 512
#define MOST_ENTRIES (1u << 24)
/* As numbers.py has them: what fits 64 bits as nanoseconds, added and subtracted. */
#define MOST_US ((int64_t)(((int64_t)1 << 61) / 1000))
#define NONE (-1)

/* ------------------------------------------------------------------ interned text */

typedef struct {
    uint64_t hash;
    size_t at;
    uint32_t length;
} Entry;

/* Numbers for pieces of text. What came after `kept` can be dropped again. */
typedef struct {
    Entry *entries;
    uint32_t count, kept, room;
    uint32_t *slots; /* a number + 1 */
    uint32_t mask;
    char *text;
    size_t used, used_kept, size;
} Table;

static uint64_t hash_of(const char *s, size_t n) {
    uint64_t h = n * 0x9E3779B97F4A7C15ull, w;
    for (; n >= 8; s += 8, n -= 8) {
        memcpy(&w, s, 8);
        h = (h ^ w) * 0x9E3779B97F4A7C15ull;
        h ^= h >> 32;
    }
    w = 0;
    memcpy(&w, s, n);
    h = (h ^ w) * 0x9E3779B97F4A7C15ull;
    return h ^ (h >> 29);
}

static void put(Table *t, uint32_t number) {
    uint32_t i = (uint32_t)t->entries[number].hash & t->mask;
    while (t->slots[i])
        i = (i + 1) & t->mask;
    t->slots[i] = number + 1;
}

static int grow(Table *t) {
    uint32_t room = t->room ? t->room * 2 : 64, i;
    Entry *entries = realloc(t->entries, room * sizeof *entries);
    uint32_t *slots;
    if (!entries)
        return 0;
    t->entries = entries;
    slots = calloc((size_t)room * 2, sizeof *slots);
    if (!slots)
        return 0;
    free(t->slots);
    t->slots = slots;
    t->mask = room * 2 - 1;
    t->room = room;
    for (i = 0; i < t->count; i++)
        put(t, i);
    return 1;
}

static int32_t find(const Table *t, const char *s, size_t n, uint64_t hash) {
    uint32_t i = (uint32_t)hash & t->mask, probes = 0;
    if (!t->slots)
        return NONE;
    for (; t->slots[i]; i = (i + 1) & t->mask) {
        const Entry *e = &t->entries[t->slots[i] - 1];
        if (e->hash == hash && e->length == n && !memcmp(t->text + e->at, s, n))
            return (int32_t)(t->slots[i] - 1);
        /* Names that were made to collide would take the square of the time. */
        if (++probes > MOST_PROBES)
            return -2;
    }
    return NONE;
}

/* Return the number of a text, a new one where it is new; below 0: there is no room. */
static int32_t intern(Table *t, const char *s, size_t n) {
    uint64_t hash = hash_of(s, n);
    int32_t found = find(t, s, n, hash);
    Entry *e;
    if (found != NONE)
        return found;
    if (t->count >= MOST_ENTRIES || n > UINT32_MAX || (t->count == t->room && !grow(t)))
        return -2;
    if (t->used + n > t->size) {
        size_t size = (t->used + n) * 2 + 4096;
        char *text = realloc(t->text, size);
        if (!text)
            return -2;
        t->text = text;
        t->size = size;
    }
    memcpy(t->text + t->used, s, n);
    e = &t->entries[t->count];
    e->hash = hash;
    e->at = t->used;
    e->length = (uint32_t)n;
    t->used += n;
    put(t, t->count);
    return (int32_t)t->count++;
}

/* Forget what came since it was last kept, the newest first: no other entry lies behind it. */
static void drop(Table *t) {
    while (t->count > t->kept) {
        uint32_t number = --t->count, i = (uint32_t)t->entries[number].hash & t->mask;
        while (t->slots[i] != number + 1)
            i = (i + 1) & t->mask;
        t->slots[i] = 0;
    }
    t->used = t->used_kept;
}

static void keep(Table *t) {
    t->kept = t->count;
    t->used_kept = t->used;
}

static void clear(Table *t) {
    free(t->entries);
    free(t->slots);
    free(t->text);
    memset(t, 0, sizeof *t);
}

/* ------------------------------------------------------------------ columns */

enum { START, END, CATEGORY, NAME, THREAD, CORRELATION, EXTERNAL, STACK, HOST_COLUMNS };
/* Of work, the same places but for these. */
enum { DEVICE = THREAD, STREAM = STACK, BYTES = HOST_COLUMNS, WORK_COLUMNS };
static const unsigned char WIDTH[] = {8, 8, 1, 4, 4, 8, 8, 4, 8};

typedef struct {
    char *column[WORK_COLUMNS];
    int columns;
    size_t rows, room;
} Columns;

static int reserve(Columns *c) {
    size_t room = c->room ? c->room * 2 : 4096;
    int i;
    if (c->rows < c->room)
        return 1;
    for (i = 0; i < c->columns; i++) {
        char *column = realloc(c->column[i], room * WIDTH[i]);
        if (!column)
            return 0;
        c->column[i] = column;
    }
    c->room = room;
    return 1;
}

#define PUT(c, which, type, value) (((type *)(c)->column[which])[(c)->rows] = (type)(value))

/* Places in the text that Python reads itself: a row, and from where to where. */
typedef struct {
    int64_t *at;
    size_t count, room;
} Places;

static int note(Places *p, int64_t row, int64_t from, int64_t to) {
    if (p->count == p->room) {
        size_t room = p->room ? p->room * 2 : 64;
        int64_t *at = realloc(p->at, room * 3 * sizeof *at);
        if (!at)
            return 0;
        p->at = at;
        p->room = room;
    }
    p->at[p->count * 3] = row;
    p->at[p->count * 3 + 1] = from;
    p->at[p->count * 3 + 2] = to;
    p->count++;
    return 1;
}

/* ------------------------------------------------------------------ JSON */

enum { NAMES, KERNELS, THREADS, DEVICES, STREAMS, STACKS, TABLES };

typedef struct {
    PyObject_HEAD
    Table tables[TABLES];
    Table categories;
    signed char host_code[64], work_code[64]; /* by number of the category; NONE: it is none */
    Columns host, work;
    Places metadata, host_notes, work_notes;
    int64_t events, negative;
    const char *text; /* while it is scanned */
    const char *end;
    int high; /* a byte of no ASCII was seen in text that nobody decodes */
} Scanner;

/* s text, i whole number, f number with a point, e with an exponent, b true or false, n null,
   o object, a list; 0 is missing. */
typedef struct {
    const char *from, *to;
    char kind;
    char escaped;
} Token;

#define ONES 0x0101010101010101ull
#define HIGHS 0x8080808080808080ull

static const char *blank(const char *p, const char *end) {
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r'))
        p++;
    return p;
}

static int is_hex(char c) {
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f');
}

/* Return where an escape ends, which begins at a backslash; no half of a pair is taken. */
static const char *escape(const char *p, const char *end) {
    if (end - p < 2)
        return NULL;
    if (p[1] == 'u') {
        if (end - p < 6 || !is_hex(p[2]) || !is_hex(p[3]) || !is_hex(p[4]) || !is_hex(p[5]))
            return NULL;
        if ((p[2] | 32) == 'd' && p[3] >= '8')
            return NULL;
        return p + 6;
    }
    return p[1] && strchr("\"\\/bfnrt", p[1]) ? p + 2 : NULL;
}

/* Return where a text ends, behind its closing quote; p is behind the opening one. */
static const char *text(Scanner *s, const char *p, char *escaped) {
    const char *end = s->end;
    for (;;) {
        while (end - p >= 8) {
            uint64_t w, quote, back, hit;
            memcpy(&w, p, 8);
            quote = w ^ 0x2222222222222222ull;
            back = w ^ 0x5C5C5C5C5C5C5C5Cull;
            hit = ((quote - ONES) & ~quote) | ((back - ONES) & ~back) | (w - 0x2020202020202020ull) | w;
            if (hit & HIGHS) {
#if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
                p += __builtin_ctzll(hit & HIGHS) >> 3;
#endif
                break;
            }
            p += 8;
        }
        for (;;) {
            unsigned char c;
            if (p >= end)
                return NULL;
            c = (unsigned char)*p;
            if (c == '"')
                return p + 1;
            if (c < 0x20)
                return NULL;
            if (c == '\\') {
                *escaped = 1;
                if (!(p = escape(p, end)))
                    return NULL;
                break;
            }
            p++;
            if (c >= 0x80) {
                s->high = 1;
                break;
            }
        }
    }
}

static const char *digits(const char *p, const char *end) {
    const char *from = p;
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    return p > from ? p : NULL;
}

static const char *number(const char *p, const char *end, char *kind) {
    *kind = 'i';
    if (p < end && *p == '-')
        p++;
    if (p < end && *p == '0')
        p++;
    else if (!(p = digits(p, end)))
        return NULL;
    if (p < end && *p == '.') {
        *kind = 'f';
        if (!(p = digits(p + 1, end)))
            return NULL;
    }
    if (p < end && (*p | 32) == 'e') {
        *kind = 'e';
        p++;
        if (p < end && (*p == '+' || *p == '-'))
            p++;
        p = digits(p, end);
    }
    return p;
}

static const char *word(const char *p, const char *end, const char *expected, size_t n) {
    return (size_t)(end - p) >= n && !memcmp(p, expected, n) ? p + n : NULL;
}

static const char *value(Scanner *s, const char *p, Token *found, int depth);

/* Return where a list or an object ends, whose opening bracket p is behind. */
static const char *nested(Scanner *s, const char *p, char close, int depth) {
    Token token;
    if (depth > DEEPEST)
        return NULL;
    p = blank(p, s->end);
    if (p < s->end && *p == close)
        return p + 1;
    for (;;) {
        if (close == '}') {
            char escaped;
            if (p >= s->end || *p != '"' || !(p = text(s, p + 1, &escaped)))
                return NULL;
            p = blank(p, s->end);
            if (p >= s->end || *p != ':')
                return NULL;
            p = blank(p + 1, s->end);
        }
        if (!(p = value(s, p, &token, depth + 1)))
            return NULL;
        p = blank(p, s->end);
        if (p >= s->end)
            return NULL;
        if (*p == close)
            return p + 1;
        if (*p != ',')
            return NULL;
        p = blank(p + 1, s->end);
    }
}

static const char *value(Scanner *s, const char *p, Token *found, int depth) {
    const char *end = s->end;
    if (p >= end)
        return NULL;
    found->from = p;
    found->escaped = 0;
    switch (*p) {
    case '"':
        found->kind = 's';
        p = text(s, p + 1, &found->escaped);
        break;
    case '{':
        found->kind = 'o';
        p = nested(s, p + 1, '}', depth);
        break;
    case '[':
        found->kind = 'a';
        p = nested(s, p + 1, ']', depth);
        break;
    case 't':
        found->kind = 'b';
        p = word(p, end, "true", 4);
        break;
    case 'f':
        found->kind = 'b';
        p = word(p, end, "false", 5);
        break;
    case 'n':
        found->kind = 'n';
        p = word(p, end, "null", 4);
        break;
    default:
        p = number(p, end, &found->kind);
    }
    found->to = p;
    return p;
}

/* ------------------------------------------------------------------ events */

enum { E_PH, E_CAT, E_NAME, E_PID, E_TID, E_TS, E_DUR, E_ARGS, E_KEYS };
enum { A_DEVICE, A_STREAM, A_CORRELATION, A_EXTERNAL, A_OLD, A_BYTES, A_STACK, A_NAME, A_COLLECTIVE, A_KEYS };

static int is(const char *p, const char *known, size_t n) { return !memcmp(p, known, n); }

static int event_key(const char *k, size_t n) {
    if (n == 2)
        return is(k, "ph", 2) ? E_PH : is(k, "ts", 2) ? E_TS : NONE;
    if (n == 3)
        return is(k, "pid", 3)   ? E_PID
               : is(k, "tid", 3) ? E_TID
               : is(k, "cat", 3) ? E_CAT
               : is(k, "dur", 3) ? E_DUR
                                 : NONE;
    if (n == 4)
        return is(k, "name", 4) ? E_NAME : is(k, "args", 4) ? E_ARGS : NONE;
    return NONE;
}

static int args_key(const char *k, size_t n) {
    switch (n) {
    case 4:
        return is(k, "name", 4) ? A_NAME : NONE;
    case 5:
        return is(k, "bytes", 5) ? A_BYTES : NONE;
    case 6:
        return is(k, "device", 6) ? A_DEVICE : is(k, "stream", 6) ? A_STREAM : NONE;
    case 10:
        return is(k, "Call stack", 10) ? A_STACK : NONE;
    case 11:
        return is(k, "External id", 11)   ? A_EXTERNAL
               : is(k, "correlation", 11) ? A_CORRELATION
               : is(k, "external id", 11) ? A_OLD
                                          : NONE;
    case 15:
        return is(k, "Collective name", 15) ? A_COLLECTIVE : NONE;
    }
    return NONE;
}

/* Read an object, whose opening brace p is behind, as far as its keys are known. */
static const char *object(Scanner *s, const char *p, Token *event, Token *args) {
    Token *known = event ? event : args, other;
    int keys = event ? E_KEYS : A_KEYS, i;
    for (i = 0; i < keys; i++)
        known[i].kind = 0;
    p = blank(p, s->end);
    if (p < s->end && *p == '}')
        return p + 1;
    for (;;) {
        const char *key;
        char escaped = 0;
        int which;
        Token *found;
        if (p >= s->end || *p != '"')
            return NULL;
        key = p + 1;
        if (!(p = text(s, key, &escaped)) || escaped)
            return NULL;
        which = event ? event_key(key, (size_t)(p - 1 - key)) : args_key(key, (size_t)(p - 1 - key));
        p = blank(p, s->end);
        if (p >= s->end || *p != ':')
            return NULL;
        p = blank(p + 1, s->end);
        found = which == NONE ? &other : &known[which];
        if (which != NONE && found->kind)
            return NULL; /* twice: which one counts? */
        if (event && which == E_ARGS && p < s->end && *p == '{') {
            found->kind = 'o';
            p = object(s, p + 1, NULL, args);
        } else
            p = value(s, p, found, 2);
        if (!p)
            return NULL;
        p = blank(p, s->end);
        if (p >= s->end)
            return NULL;
        if (*p == '}')
            return p + 1;
        if (*p != ',')
            return NULL;
        p = blank(p + 1, s->end);
    }
}

/* Read a whole number of 64 bits; missing, null, and what is larger, is none. */
static int whole(const Token *t, int64_t *found) {
    const char *p = t->from;
    uint64_t n = 0, most = INT64_MAX;
    int minus = 0;
    *found = NONE;
    if (!t->kind || t->kind == 'n')
        return 1;
    if (t->kind != 'i' || t->to - p > 19)
        return 0;
    if (*p == '-') {
        minus = 1;
        p++;
    }
    for (; p < t->to; p++)
        n = n * 10 + (uint64_t)(*p - '0');
    if (n <= most)
        *found = minus ? -(int64_t)n : (int64_t)n;
    return n <= most || !minus;
}

/* Read microseconds as nanoseconds, of three decimals at most. */
static int nanoseconds(const Token *t, int64_t *found) {
    const char *p = t->from;
    int64_t us = 0, ns = 0;
    int minus = 0, decimals = 0;
    if (t->kind != 'i' && t->kind != 'f')
        return 0;
    if (*p == '-') {
        minus = 1;
        p++;
    }
    for (; p < t->to && *p != '.'; p++) {
        us = us * 10 + (*p - '0');
        if (us >= MOST_US)
            return 0;
    }
    for (p++; p < t->to; p++, decimals++) {
        if (decimals < 3)
            ns = ns * 10 + (*p - '0');
        else if (*p != '0')
            return 0;
    }
    for (; decimals < 3; decimals++)
        ns *= 10;
    ns += us * 1000;
    *found = minus ? -ns : ns;
    return 1;
}

static int32_t intern_token(Table *t, const Token *token, const char *missing, size_t n) {
    return token->kind ? intern(t, token->from, (size_t)(token->to - token->from))
                       : intern(t, missing, n);
}

static int is_id(const Token *t) {
    return !t->kind || t->kind == 'i' || t->kind == 's' || t->kind == 'n';
}

static int is_scalar(const Token *t) { return t->kind != 'o' && t->kind != 'a' && t->kind != 'e'; }

/* Threads are pairs of ids: one text, with a byte between that no JSON has. */
static int32_t thread_of(Scanner *s, const Token *pid, const Token *tid) {
    char pair[512];
    const char *a = pid->kind ? pid->from : "null", *b = tid->kind ? tid->from : "null";
    size_t n = pid->kind ? (size_t)(pid->to - a) : 4, m = tid->kind ? (size_t)(tid->to - b) : 4;
    if (n + m + 1 > sizeof pair)
        return -2;
    memcpy(pair, a, n);
    pair[n] = 0;
    memcpy(pair + n + 1, b, m);
    return intern(&s->tables[THREADS], pair, n + m + 1);
}

static int add_times(Scanner *s, Columns *c, const Token *event) {
    int64_t start, length = 0;
    if (!nanoseconds(&event[E_TS], &start))
        return 0;
    if (event[E_DUR].kind && !nanoseconds(&event[E_DUR], &length))
        return 0;
    if (length < 0) {
        length = 0;
        s->negative++;
    }
    if (!reserve(c))
        return 0;
    PUT(c, START, int64_t, start);
    PUT(c, END, int64_t, start + length);
    return 1;
}

static int add_ids(Columns *c, const Token *args) {
    int64_t correlation, external, old;
    if (!whole(&args[A_CORRELATION], &correlation) || !whole(&args[A_EXTERNAL], &external) ||
        !whole(&args[A_OLD], &old))
        return 0;
    PUT(c, CORRELATION, int64_t, correlation);
    PUT(c, EXTERNAL, int64_t, external < 0 ? old : external);
    return 1;
}

static int is_noted(const Token *args) {
    return args[A_COLLECTIVE].kind && args[A_COLLECTIVE].kind != 'n';
}

static int add_host(Scanner *s, const Token *event, const Token *args, int code, const char *to) {
    Columns *c = &s->host;
    const Token *stack = &args[A_STACK];
    int32_t name, thread, trace = NONE;
    if (!add_times(s, c, event) || !add_ids(c, args))
        return 0;
    name = intern_token(&s->tables[NAMES], &event[E_NAME], "\"\"", 2);
    thread = thread_of(s, &event[E_PID], &event[E_TID]);
    if (stack->kind == 's' && stack->to - stack->from > 2) {
        if ((trace = intern_token(&s->tables[STACKS], stack, NULL, 0)) < 0)
            return 0;
    }
    if (name < 0 || thread < 0)
        return 0;
    PUT(c, CATEGORY, int8_t, code);
    PUT(c, NAME, int32_t, name);
    PUT(c, THREAD, int32_t, thread);
    PUT(c, STACK, int32_t, trace);
    if (is_noted(args) &&
        !note(&s->host_notes, (int64_t)c->rows, event[E_KEYS].from - s->text, to - s->text))
        return 0;
    c->rows++;
    return 1;
}

/* A device or a stream: what the arguments say, else the id of a process or a thread. */
static int32_t place_of(Table *t, const Token *said, const Token *else_) {
    if (said->kind && said->kind != 'n') {
        if (said->kind != 'i' && said->kind != 's')
            return -2;
        return intern_token(t, said, NULL, 0);
    }
    return intern_token(t, else_, "null", 4);
}

static int add_work(Scanner *s, const Token *event, const Token *args, int code, const char *to) {
    Columns *c = &s->work;
    int32_t name, device, stream;
    int64_t bytes;
    if (!add_times(s, c, event) || !add_ids(c, args) || !whole(&args[A_BYTES], &bytes))
        return 0;
    name = intern_token(&s->tables[KERNELS], &event[E_NAME], "\"\"", 2);
    device = place_of(&s->tables[DEVICES], &args[A_DEVICE], &event[E_PID]);
    stream = place_of(&s->tables[STREAMS], &args[A_STREAM], &event[E_TID]);
    if (name < 0 || device < 0 || stream < 0)
        return 0;
    PUT(c, CATEGORY, int8_t, code);
    PUT(c, NAME, int32_t, name);
    PUT(c, DEVICE, int32_t, device);
    PUT(c, STREAM, int32_t, stream);
    PUT(c, BYTES, int64_t, bytes);
    if (is_noted(args) &&
        !note(&s->work_notes, (int64_t)c->rows, event[E_KEYS].from - s->text, to - s->text))
        return 0;
    c->rows++;
    return 1;
}

/* Something that took time: its types are checked whether it counts or not. */
static int add_timed(Scanner *s, const Token *event, const Token *args, const char *to) {
    const Token *cat = &event[E_CAT];
    int32_t category;
    int i;
    size_t n;
    if (!is_id(&event[E_PID]) || !is_id(&event[E_TID]))
        return 0;
    if ((event[E_NAME].kind && event[E_NAME].kind != 's') ||
        (cat->kind && cat->kind != 's' && cat->kind != 'n') || cat->escaped)
        return 0;
    if (event[E_ARGS].kind && event[E_ARGS].kind != 'o' && event[E_ARGS].kind != 'n')
        return 0;
    for (i = 0; i < A_COLLECTIVE; i++)
        if (!is_scalar(&args[i]))
            return 0;
    for (i = E_TS; i <= E_DUR; i++)
        if (!is_scalar(&event[i]) || event[i].kind == 'b')
            return 0;
    if (cat->kind != 's')
        return 1;
    n = (size_t)(cat->to - cat->from) - 2;
    category = find(&s->categories, cat->from + 1, n, hash_of(cat->from + 1, n));
    if (category < 0)
        return 1;
    if (s->host_code[category] >= 0)
        return add_host(s, event, args, s->host_code[category], to);
    return add_work(s, event, args, s->work_code[category], to);
}

static const char *one_event(Scanner *s, const char *p) {
    Token event[E_KEYS + 1], args[A_KEYS];
    const Token *ph = &event[E_PH];
    int i;
    for (i = 0; i < A_KEYS; i++)
        args[i].kind = 0;
    event[E_KEYS].from = p;
    if (!(p = object(s, p + 1, event, args)) || ph->kind != 's' || ph->to - ph->from != 3)
        return NULL;
    s->events++;
    switch (ph->from[1]) {
    case 'X':
        return add_timed(s, event, args, p) ? p : NULL;
    case 'M':
        return note(&s->metadata, 0, event[E_KEYS].from - s->text, p - s->text) ? p : NULL;
    default:
        return strchr("BEiICbneSTpFstfPNODVvRc()", ph->from[1]) ? p : NULL;
    }
}

static int scan(Scanner *s) {
    const char *p = blank(s->text, s->end);
    if (p >= s->end || *p != '[')
        return 0;
    p = blank(p + 1, s->end);
    if (p < s->end && *p == ']')
        return blank(p + 1, s->end) == s->end;
    for (;;) {
        if (p >= s->end || *p != '{' || !(p = one_event(s, p)))
            return 0;
        p = blank(p, s->end);
        if (p >= s->end)
            return 0;
        if (*p == ']')
            return blank(p + 1, s->end) == s->end;
        if (*p != ',')
            return 0;
        p = blank(p + 1, s->end);
    }
}

/* ------------------------------------------------------------------ for Python */

static PyObject *columns_of(const Columns *c) {
    PyObject *found = PyTuple_New(c->columns);
    int i;
    for (i = 0; found && i < c->columns; i++) {
        PyObject *column = PyBytes_FromStringAndSize(c->column[i], (Py_ssize_t)(c->rows * WIDTH[i]));
        if (!column || PyTuple_SetItem(found, i, column) < 0)
            Py_CLEAR(found);
    }
    return found;
}

static PyObject *places_of(const Places *p) {
    return PyBytes_FromStringAndSize((const char *)p->at, (Py_ssize_t)(p->count * 3 * sizeof *p->at));
}

/* What was interned since it was last kept, as it stands in the file. */
static PyObject *new_of(const Table *t) {
    PyObject *found = PyList_New((Py_ssize_t)(t->count - t->kept));
    uint32_t i;
    for (i = t->kept; found && i < t->count; i++) {
        const Entry *e = &t->entries[i];
        PyObject *raw = PyBytes_FromStringAndSize(t->text + e->at, (Py_ssize_t)e->length);
        if (!raw || PyList_SetItem(found, (Py_ssize_t)(i - t->kept), raw) < 0)
            Py_CLEAR(found);
    }
    return found;
}

static PyObject *tables_of(const Scanner *s) {
    PyObject *found = PyTuple_New(TABLES);
    int i;
    for (i = 0; found && i < TABLES; i++) {
        PyObject *raw = new_of(&s->tables[i]);
        if (!raw || PyTuple_SetItem(found, i, raw) < 0)
            Py_CLEAR(found);
    }
    return found;
}

static void drop_all(Scanner *s) {
    int i;
    for (i = 0; i < TABLES; i++)
        drop(&s->tables[i]);
    s->host.rows = s->work.rows = 0;
    s->metadata.count = s->host_notes.count = s->work_notes.count = 0;
    s->events = s->negative = 0;
    s->high = 0;
}

static PyObject *scanner_scan(PyObject *self, PyObject *given) {
    Scanner *s = (Scanner *)self;
    Py_buffer piece;
    int fine;
    if (PyObject_GetBuffer(given, &piece, PyBUF_SIMPLE) < 0)
        return NULL;
    if (s->text) {
        PyBuffer_Release(&piece);
        PyErr_SetString(PyExc_RuntimeError, "one scan at a time");
        return NULL;
    }
    drop_all(s);
    s->text = piece.buf;
    s->end = s->text + piece.len;
    Py_BEGIN_ALLOW_THREADS
    fine = scan(s);
    Py_END_ALLOW_THREADS
    if (fine && s->high) {
        /* Not all of it is decoded later. */
        PyObject *decoded = PyUnicode_DecodeUTF8(s->text, piece.len, NULL);
        if (!decoded)
            PyErr_Clear();
        fine = decoded != NULL;
        Py_XDECREF(decoded);
    }
    s->text = s->end = NULL;
    PyBuffer_Release(&piece);
    if (!fine) {
        drop_all(s);
        Py_RETURN_NONE;
    }
    return Py_BuildValue("LLNNNNNN", (long long)s->events, (long long)s->negative,
                         columns_of(&s->host), columns_of(&s->work), tables_of(s),
                         places_of(&s->metadata), places_of(&s->host_notes),
                         places_of(&s->work_notes));
}

static PyObject *scanner_keep(PyObject *self, PyObject *unused) {
    Scanner *s = (Scanner *)self;
    int i;
    (void)unused;
    for (i = 0; i < TABLES; i++)
        keep(&s->tables[i]);
    Py_RETURN_NONE;
}

static int add_categories(Scanner *s, PyObject *given, signed char *code) {
    Py_ssize_t i, n = PyList_Size(given);
    for (i = 0; i < n; i++) {
        const char *name;
        Py_ssize_t length;
        int value;
        int32_t number;
        if (!PyArg_ParseTuple(PyList_GetItem(given, i), "y#i", &name, &length, &value))
            return 0;
        number = intern(&s->categories, name, (size_t)length);
        if (number < 0 || number >= (int32_t)sizeof s->host_code) {
            PyErr_SetString(PyExc_ValueError, "too many categories");
            return 0;
        }
        code[number] = (signed char)value;
    }
    return 1;
}

static PyObject *scanner_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    PyObject *host, *work;
    Scanner *s;
    (void)named;
    if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &host, &PyList_Type, &work))
        return NULL;
    s = (Scanner *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!s)
        return NULL;
    s->host.columns = HOST_COLUMNS;
    s->work.columns = WORK_COLUMNS;
    memset(s->host_code, NONE, sizeof s->host_code);
    memset(s->work_code, NONE, sizeof s->work_code);
    if (!add_categories(s, host, s->host_code) || !add_categories(s, work, s->work_code)) {
        Py_DECREF(s);
        return NULL;
    }
    return (PyObject *)s;
}

static void scanner_free(PyObject *self) {
    Scanner *s = (Scanner *)self;
    PyTypeObject *type = Py_TYPE(self);
    int i;
    for (i = 0; i < TABLES; i++)
        clear(&s->tables[i]);
    clear(&s->categories);
    for (i = 0; i < WORK_COLUMNS; i++) {
        free(s->host.column[i]);
        free(s->work.column[i]);
    }
    free(s->metadata.at);
    free(s->host_notes.at);
    free(s->work_notes.at);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"scan", scanner_scan, METH_O,
     "Return the columns of a JSON list of events; None: it is not for us. Nothing is kept yet."},
    {"keep", scanner_keep, METH_NOARGS, "Keep what the last scan has interned."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, scanner_new},
    {Py_tp_dealloc, scanner_free},
    {Py_tp_methods, methods},
    {Py_tp_doc, "Reads lists of events; given the categories that count, of hosts and of devices."},
    {0, NULL},
};

static PyType_Spec spec = {
    "whyidle.monitor.traces.kineto._scan.Scanner", sizeof(Scanner), 0, Py_TPFLAGS_DEFAULT, slots,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_scan", "Lists of Kineto events as columns.", -1, NULL, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__scan(void) {
    PyObject *made = PyModule_Create(&module), *type;
    if (!made)
        return NULL;
    type = PyType_FromSpec(&spec);
    if (!type || PyModule_AddObjectRef(made, "Scanner", type) < 0)
        Py_CLEAR(made);
    Py_XDECREF(type);
    return made;
}
