/* Plays a tape: the value of a track at a time, and its mean over an interval. */
#include "tape.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "api.h"

static double offset(const struct device *device, double t)
{
    const struct device *gpu = device->parent ? device->parent : device;
    return t + gpu->shift > 0 ? t + gpu->shift : 0;
}

static uint64_t turns(const struct tape *tape, double t)
{
    return tape->loop > 0 ? (uint64_t)(t / tape->loop) : 0;
}

double tape_inside(const struct tape *tape, const struct device *device, double t)
{
    double here = offset(device, t);
    return here - (double)turns(tape, here) * tape->loop;
}

/* Index of the last point at or before t; 0 if t is before all of them. */
static size_t find_point(const struct track *track, double t)
{
    size_t low = 0, high = track->count;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (track->points[middle].t <= t)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static struct reading from_real(double real)
{
    struct reading reading = {.real = real};
    if (real >= 0 && real < 18446744073709551616.0)
        reading.whole = (uint64_t)real;
    else if (real < 0)
        reading.whole = (uint64_t)(int64_t)real;
    return reading;
}

/* Between two points, or beyond the last with the last slope. */
static double on_line(const struct point *a, const struct point *b, double t)
{
    double width = b->t - a->t;
    if (width <= 0)
        return b->value.real;
    return a->value.real + (b->value.real - a->value.real) * (t - a->t) / width;
}

static struct reading value_at(const struct track *track, double t)
{
    size_t i = find_point(track, t);
    const struct point *here = &track->points[i];
    if (track->shape == STEPS || here->value.error || t <= here->t)
        return here->value;
    if (i + 1 < track->count && !here[1].value.error)
        return from_real(on_line(here, here + 1, t));
    if (track->shape == RAMP && i > 0 && !here[-1].value.error)
        return from_real(on_line(here - 1, here, t));
    return here->value;
}

static struct reading track_at(const struct tape *tape, const struct track *track, double t)
{
    uint64_t turn = turns(tape, t);
    struct reading reading = value_at(track, t - (double)turn * tape->loop);
    if (reading.error || track->shape != RAMP)
        return reading;
    if (turn > 0) {
        double rise = value_at(track, tape->loop).real - value_at(track, 0).real;
        reading = from_real(reading.real + (double)turn * rise);
    }
    if (track->wrap > 0) {
        reading.whole %= track->wrap;
        reading.real = (double)reading.whole;
    }
    return reading;
}

/* The first time after t at which the track may change its course. */
static double next_change(const struct tape *tape, const struct track *track, double t)
{
    double start = (double)turns(tape, t) * tape->loop;
    double next = tape->loop > 0 ? start + tape->loop : INFINITY;
    size_t i = find_point(track, t - start);
    if (track->points[i].t <= t - start)
        i++;
    if (i < track->count && start + track->points[i].t < next)
        next = start + track->points[i].t;
    return next > t ? next : t + 1e-6; /* rounding must not stop the walk */
}

static const struct track *find_track(const struct device *device, const char *key)
{
    for (size_t i = 0; i < device->tracks_count; i++)
        if (strcmp(device->tracks[i].key, key) == 0)
            return &device->tracks[i];
    return NULL;
}

struct reading tape_at(const struct tape *tape, const struct device *device, const char *key,
                       double t)
{
    const struct track *track = find_track(device, key);
    if (!track)
        return (struct reading){.error = NOT_SUPPORTED};
    return track_at(tape, track, offset(device, t));
}

struct reading tape_mean(const struct tape *tape, const struct device *device, const char *key,
                         double from, double to)
{
    const struct track *track = find_track(device, key);
    if (!track || to <= from)
        return tape_at(tape, device, key, to);
    double sum = 0, t = offset(device, from), end = offset(device, to);
    while (t < end) {
        double next = next_change(tape, track, t);
        if (next > end)
            next = end;
        /* In one stretch the track is a straight line, whose mean is its value in the middle. */
        struct reading middle = track_at(tape, track, (t + next) / 2);
        if (middle.error)
            return middle;
        sum += middle.real * (next - t);
        t = next;
    }
    return from_real(sum / (to - from));
}

static const char *find_text(const struct text *texts, size_t count, const char *key)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(texts[i].key, key) == 0)
            return texts[i].value;
    return NULL;
}

const char *tape_text(const struct device *device, const char *key)
{
    return find_text(device->texts, device->texts_count, key);
}

const char *tape_setting(const struct tape *tape, const char *key)
{
    return find_text(tape->settings, tape->settings_count, key);
}

bool tape_names(const char *name, const char *function)
{
    size_t length = strlen(name);
    if (strcmp(name, "*") == 0)
        return true;
    if (strncmp(name, function, length) != 0)
        return false;
    const char *rest = function + length;
    return !*rest || (rest[0] == '_' && rest[1] == 'v' && isdigit((unsigned char)rest[2]));
}
