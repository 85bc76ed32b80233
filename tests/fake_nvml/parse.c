/* Reads a tape file: words, values, tracks, settings. README.md describes the format. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse.h"

bool fail(const struct parser *parser, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "fake NVML: %s:%u: ", parser->path, parser->line);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return false;
}

void *grow(void *array, size_t count, size_t size)
{
    if (count & (count - 1) || (count == 0 && array))
        return array;
    void *grown = realloc(array, (count ? 2 * count : 1) * size);
    if (!grown)
        abort();
    return grown;
}

char *copy(const char *text)
{
    char *copied = strdup(text);
    if (!copied)
        abort();
    return copied;
}

/* Cuts a line into words in place; "..." is one word; # starts a comment. */
static void split(struct parser *parser, char *at)
{
    parser->count = 0;
    for (;;) {
        at += strspn(at, " \t\r\n");
        if (!*at || *at == '#')
            return;
        const char *stops = " \t\r\n";
        if (*at == '"') {
            stops = "\"";
            at++;
        }
        parser->words = grow(parser->words, parser->count, sizeof *parser->words);
        parser->words[parser->count++] = at;
        at += strcspn(at, stops);
        if (!*at)
            return;
        *at++ = '\0';
    }
}

bool read_number(const char *text, double *number)
{
    char *end;
    *number = strtod(text, &end);
    return end != text && !*end;
}

static bool read_value(const char *text, struct reading *value)
{
    *value = (struct reading){0};
    if (*text == '!') {
        value->error = atoi(text + 1);
        return value->error > 0;
    }
    if (!read_number(text, &value->real))
        return false;
    if (strncmp(text, "0x", 2) == 0 || strspn(text, "0123456789") == strlen(text))
        value->whole = strtoull(text, NULL, strncmp(text, "0x", 2) == 0 ? 16 : 10);
    else if (value->real < 0)
        value->whole = (uint64_t)(int64_t)value->real;
    else if (value->real < 18446744073709551616.0)
        value->whole = (uint64_t)value->real;
    return true;
}

bool read_window(const char *text, double *from, double *to)
{
    char *end;
    *from = strtod(text, &end);
    return end != text && *end == '-' && read_number(end + 1, to) && *to >= *from;
}

void add_text(struct text **texts, size_t *count, const char *key, const char *value)
{
    for (size_t i = 0; i < *count; i++) {
        if (strcmp((*texts)[i].key, key) == 0) {
            (*texts)[i].value = copy(value);
            return;
        }
    }
    *texts = grow(*texts, *count, sizeof **texts);
    (*texts)[(*count)++] = (struct text){copy(key), copy(value)};
}

static struct track *get_track(struct device *device, const char *key)
{
    for (size_t i = 0; i < device->tracks_count; i++)
        if (strcmp(device->tracks[i].key, key) == 0)
            return &device->tracks[i];
    device->tracks = grow(device->tracks, device->tracks_count, sizeof *device->tracks);
    struct track *track = &device->tracks[device->tracks_count++];
    *track = (struct track){.key = copy(key)};
    return track;
}

static void add_point(struct track *track, double t, struct reading value)
{
    track->points = grow(track->points, track->count, sizeof *track->points);
    track->points[track->count++] = (struct point){t, value};
}

void set_track(struct device *device, const char *key, const char *value)
{
    struct reading reading;
    if (read_value(value, &reading))
        add_point(get_track(device, key), 0, reading);
}

static bool parse_points(struct parser *parser, struct device *device, enum shape shape)
{
    struct track *track = get_track(device, parser->words[2]);
    track->shape = shape;
    for (size_t i = 3; i < parser->count; i++) {
        const char *word = parser->words[i];
        if (strncmp(word, "wrap=", 5) == 0) {
            track->wrap = strtoull(word + 5, NULL, 10);
            continue;
        }
        char *end;
        double t = strtod(word, &end);
        struct reading value;
        if (end == word || *end != ':' || !read_value(end + 1, &value))
            return fail(parser, "'%s' is not time:value or time:!error", word);
        if (track->count && t < track->points[track->count - 1].t)
            return fail(parser, "'%s' is earlier than the point before it", word);
        add_point(track, t, value);
    }
    return track->count > 0 || fail(parser, "a track needs a point");
}

static bool parse_track(struct parser *parser)
{
    const char *shape = parser->words[0];
    struct device *found[MAX_GPUS];
    size_t count = targets(parser, parser->words[1], found);
    for (size_t i = 0; i < count; i++)
        if (!parse_points(parser, found[i],
                          *shape == 't'   ? STEPS
                          : *shape == 'l' ? LINE
                                          : RAMP))
            return false;
    return count || no_device(parser);
}

static bool parse_const(struct parser *parser)
{
    struct device *found[MAX_GPUS];
    size_t count = targets(parser, parser->words[1], found);
    for (size_t i = 0; i < count; i++)
        add_text(&found[i]->texts, &found[i]->texts_count, parser->words[2], parser->words[3]);
    return count || no_device(parser);
}

static bool parse_fault(struct parser *parser)
{
    struct tape *tape = parser->tape;
    struct fault fault = {.gpu = -1, .function = copy(parser->words[2])};
    const char *effect = parser->words[4];
    if (strcmp(parser->words[1], "*") != 0)
        fault.gpu = atoi(parser->words[1]);
    if (!read_window(parser->words[3], &fault.from, &fault.to))
        return fail(parser, "'%s' is not from-to", parser->words[3]);
    if (*effect == '!')
        fault.error = atoi(effect + 1);
    else if (strncmp(effect, "hang=", 5) != 0 || !read_number(effect + 5, &fault.hang))
        return fail(parser, "'%s' is not !error or hang=seconds", effect);
    tape->faults = grow(tape->faults, tape->faults_count, sizeof *tape->faults);
    tape->faults[tape->faults_count++] = fault;
    return true;
}

static bool parse_latency(struct parser *parser)
{
    struct tape *tape = parser->tape;
    struct latency latency = {.function = copy(parser->words[1])};
    if (!read_number(parser->words[2], &latency.microseconds))
        return fail(parser, "'%s' is not a number of microseconds", parser->words[2]);
    tape->latencies = grow(tape->latencies, tape->latencies_count, sizeof *tape->latencies);
    tape->latencies[tape->latencies_count++] = latency;
    return true;
}

static bool parse_field_type(struct parser *parser)
{
    static const char *const names[] = {"double", "uint", "ulong", "ullong", "llong", "int",
                                        "ushort"};
    struct tape *tape = parser->tape;
    for (unsigned int i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(parser->words[2], names[i]) == 0) {
            struct field_type type = {(unsigned int)atoi(parser->words[1]), i};
            tape->field_types =
                grow(tape->field_types, tape->field_types_count, sizeof *tape->field_types);
            tape->field_types[tape->field_types_count++] = type;
            return true;
        }
    }
    return fail(parser, "no field type '%s'", parser->words[2]);
}

static bool parse_set(struct parser *parser)
{
    struct tape *tape = parser->tape;
    const char *key = parser->words[1], *value = parser->words[2];
    double *number = strcmp(key, "loop") == 0 ? &tape->loop
                     : strcmp(key, "speed") == 0 ? &tape->speed
                                                 : NULL;
    if (number && !read_number(value, number))
        return fail(parser, "'%s' is not a number", value);
    add_text(&tape->settings, &tape->settings_count, key, value);
    return true;
}

static const struct {
    const char *word;
    size_t least;
    bool (*parse)(struct parser *parser);
} directives[] = {
    {"set", 3, parse_set},         {"gpu", 2, parse_gpu},     {"const", 4, parse_const},
    {"track", 4, parse_track},     {"line", 4, parse_track},  {"ramp", 4, parse_track},
    {"proc", 4, parse_proc},       {"xid", 4, parse_xid},     {"mig", 3, parse_mig},
    {"fault", 5, parse_fault},     {"latency", 3, parse_latency},
    {"fieldtype", 3, parse_field_type},
};

static bool parse_line(struct parser *parser, char *line)
{
    split(parser, line);
    if (parser->count == 0)
        return true;
    for (size_t i = 0; i < sizeof directives / sizeof *directives; i++) {
        if (strcmp(parser->words[0], directives[i].word) == 0) {
            if (parser->count < directives[i].least)
                return fail(parser, "'%s' needs more words", parser->words[0]);
            return directives[i].parse(parser);
        }
    }
    return fail(parser, "'%s' is no directive", parser->words[0]);
}

struct tape *tape_load(const char *path)
{
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) {
        fprintf(stderr, "fake NVML: cannot read the tape '%s' (WHYIDLE_NVML_TAPE): %s\n",
                path ? path : "", path ? strerror(errno) : "the variable is not set");
        return NULL;
    }
    struct tape *tape = calloc(1, sizeof *tape);
    if (!tape)
        abort();
    tape->speed = 1;
    struct parser parser = {.path = path, .tape = tape};
    char *line = NULL;
    size_t room = 0;
    bool good = true;
    while (good && getline(&line, &room, file) >= 0) {
        if (++parser.line == 1)
            good = strncmp(line, "whyidle-nvml-tape 1", 19) == 0 ||
                   fail(&parser, "expected 'whyidle-nvml-tape 1'");
        else
            good = parse_line(&parser, line);
    }
    if (good && parser.line == 0)
        good = fail(&parser, "the file is empty");
    free(line);
    free(parser.words);
    fclose(file);
    return good ? tape : NULL; /* a broken tape ends the process's use of it: not freed */
}
