/* Reads the lines of a tape that make devices and put processes and events on them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api.h"
#include "parse.h"

size_t targets(const struct parser *parser, const char *word, struct device **found)
{
    const struct tape *tape = parser->tape;
    size_t count = 0;
    if (strcmp(word, "*") == 0) {
        for (int i = 0; i < tape->gpus_count; i++)
            found[count++] = tape->gpus[i];
        return count;
    }
    char *end;
    long gpu = strtol(word, &end, 10);
    if (end == word || gpu < 0 || gpu >= tape->gpus_count || (*end && *end != '/'))
        return 0;
    found[0] = tape->gpus[gpu];
    if (*end == '/') {
        long mig = strtol(end + 1, &end, 10);
        if (*end || mig < 0 || (size_t)mig >= found[0]->migs_count)
            return 0;
        found[0] = found[0]->migs[mig];
    }
    return 1;
}

bool no_device(const struct parser *parser)
{
    return fail(parser, "no device '%s' so far", parser->words[1]);
}

bool parse_gpu(struct parser *parser)
{
    struct tape *tape = parser->tape;
    if (tape->gpus_count == MAX_GPUS || atoi(parser->words[1]) != tape->gpus_count)
        return fail(parser, "expected gpu %d (at most %d)", tape->gpus_count, MAX_GPUS);
    struct device *gpu = calloc(1, sizeof *gpu);
    if (!gpu)
        abort();
    gpu->index = tape->gpus_count;
    if (parser->count > 2 && (strncmp(parser->words[2], "shift=", 6) != 0 ||
                              !read_number(parser->words[2] + 6, &gpu->shift)))
        return fail(parser, "'%s' is not shift=seconds", parser->words[2]);
    tape->gpus[tape->gpus_count++] = gpu;
    return true;
}

/* A number, or $NAME from the environment: a number, or @file that will hold one. */
static bool read_pid(const struct parser *parser, const char *word, struct process *process)
{
    if (strcmp(word, "$SELF") == 0) {
        process->pid = (unsigned int)getpid();
        return true;
    }
    if (*word == '$') {
        char name[128];
        snprintf(name, sizeof name, "WHYIDLE_TAPE_%s", word + 1);
        word = getenv(name);
        if (!word)
            return fail(parser, "the environment variable %s is not set", name);
    }
    if (*word == '@')
        process->pid_file = copy(word + 1);
    else
        process->pid = (unsigned int)strtoul(word, NULL, 10);
    return process->pid_file || process->pid || fail(parser, "'%s' is not a pid", word);
}

static bool set_process(struct process *process, const char *name, const char *value)
{
    static const char *const uses[] = {"sm", "mem", "enc", "dec"};
    for (size_t i = 0; i < 4; i++) {
        if (strcmp(name, uses[i]) == 0) {
            process->use[i] = (unsigned int)strtoul(value, NULL, 10);
            process->has_use = true;
            return true;
        }
    }
    if (strcmp(name, "memory") == 0)
        process->memory = strcmp(value, "none") == 0 ? UINT64_MAX : strtoull(value, NULL, 10);
    else if (strcmp(name, "type") == 0)
        process->type = copy(value);
    else if (strcmp(name, "gi") == 0)
        process->gi = (unsigned int)strtoul(value, NULL, 10);
    else if (strcmp(name, "ci") == 0)
        process->ci = (unsigned int)strtoul(value, NULL, 10);
    else
        return false;
    return true;
}

bool parse_proc(struct parser *parser)
{
    struct process process = {.memory = UINT64_MAX, .type = "C", .gi = NO_ID, .ci = NO_ID};
    if (!read_pid(parser, parser->words[2], &process))
        return false;
    if (!read_window(parser->words[3], &process.from, &process.to))
        return fail(parser, "'%s' is not from-to", parser->words[3]);
    for (size_t i = 4; i < parser->count; i++) {
        char *word = parser->words[i], *equals = strchr(word, '=');
        if (!equals)
            return fail(parser, "'%s' is not name=value", word);
        *equals = '\0';
        if (!set_process(&process, word, equals + 1))
            return fail(parser, "a process has no '%s'", word);
    }
    struct device *found[MAX_GPUS];
    size_t count = targets(parser, parser->words[1], found);
    for (size_t i = 0; i < count; i++) {
        struct device *gpu = found[i];
        if (gpu->parent)
            return fail(parser, "a process of a MIG device goes on its GPU, with gi= and ci=");
        gpu->processes = grow(gpu->processes, gpu->processes_count, sizeof *gpu->processes);
        gpu->processes[gpu->processes_count++] = process;
    }
    return count || no_device(parser);
}

bool parse_xid(struct parser *parser)
{
    struct device *found[MAX_GPUS];
    struct xid xid = {.code = strtoull(parser->words[3], NULL, 10)};
    if (!read_number(parser->words[2], &xid.t))
        return fail(parser, "'%s' is not a time", parser->words[2]);
    size_t count = targets(parser, parser->words[1], found);
    for (size_t i = 0; i < count; i++) {
        struct device *gpu = found[i];
        if (gpu->xids_count && gpu->xids[gpu->xids_count - 1].t > xid.t)
            return fail(parser, "XID events go in the order of time");
        gpu->xids = grow(gpu->xids, gpu->xids_count, sizeof *gpu->xids);
        gpu->xids[gpu->xids_count++] = xid;
    }
    return count || no_device(parser);
}

static bool set_mig(struct device *mig, const char *name, const char *value)
{
    static const char *const tracks[][2] = {
        {"memory_total", "memory.total"},
        {"memory_used", "memory.used"},
        {"memory_reserved", "memory.reserved"},
        {"sms", "attributes.sms"},
        {"gi_slices", "attributes.gi_slices"},
        {"ci_slices", "attributes.ci_slices"},
    };
    for (size_t i = 0; i < sizeof tracks / sizeof *tracks; i++) {
        if (strcmp(name, tracks[i][0]) == 0) {
            set_track(mig, tracks[i][1], value);
            return true;
        }
    }
    if (strcmp(name, "gi") == 0)
        mig->gi = (unsigned int)strtoul(value, NULL, 10);
    else if (strcmp(name, "ci") == 0)
        mig->ci = (unsigned int)strtoul(value, NULL, 10);
    else if (strcmp(name, "uuid") == 0 || strcmp(name, "profile") == 0)
        add_text(&mig->texts, &mig->texts_count, name, value);
    else
        return false;
    return true;
}

bool parse_mig(struct parser *parser)
{
    struct device *found[MAX_GPUS];
    if (targets(parser, parser->words[1], found) != 1 || found[0]->parent)
        return no_device(parser);
    struct device *gpu = found[0], *mig = calloc(1, sizeof *mig);
    if (!mig)
        abort();
    if (gpu->migs_count == MAX_MIGS || (size_t)atoi(parser->words[2]) != gpu->migs_count)
        return fail(parser, "expected MIG device %zu (at most %d)", gpu->migs_count, MAX_MIGS);
    mig->index = (int)gpu->migs_count;
    mig->parent = gpu;
    for (size_t i = 3; i < parser->count; i++) {
        char *word = parser->words[i], *equals = strchr(word, '=');
        if (!equals)
            return fail(parser, "'%s' is not name=value", word);
        *equals = '\0';
        if (!set_mig(mig, word, equals + 1))
            return fail(parser, "a MIG device has no '%s'", word);
    }
    gpu->migs[gpu->migs_count++] = mig;
    return true;
}
