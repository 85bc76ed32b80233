/* What the two halves of the parser share: words and values in parse.c, who they are about in
 * parse_device.c. */
#ifndef PARSE_H
#define PARSE_H

#include <stdbool.h>
#include <stddef.h>

#include "tape.h"

struct parser {
    const char *path;
    unsigned int line;
    struct tape *tape;
    size_t count;
    char **words;
};

/* Says on stderr what is wrong with the line; false. */
__attribute__((format(printf, 2, 3))) bool fail(const struct parser *parser, const char *format,
                                                ...);
/* Room for one more: arrays double whenever their length reaches a power of two. */
void *grow(void *array, size_t count, size_t size);
char *copy(const char *text);
bool read_number(const char *text, double *number);
/* "2-5", "2-inf" */
bool read_window(const char *text, double *from, double *to);
void add_text(struct text **texts, size_t *count, const char *key, const char *value);
/* A track of one value. */
void set_track(struct device *device, const char *key, const char *value);

/* The devices that a word names: "*" every GPU so far, "2" one, "2/0" a MIG device of it. */
size_t targets(const struct parser *parser, const char *word, struct device **found);
bool no_device(const struct parser *parser);

bool parse_gpu(struct parser *parser);
bool parse_mig(struct parser *parser);
bool parse_proc(struct parser *parser);
bool parse_xid(struct parser *parser);

#endif
