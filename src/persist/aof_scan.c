/* The scanner of append-only files: see the header.
 *
 * A command is looked at again from its start when the buffer did not hold all of it. `need` then
 * says how much is missing at least, so that a large one is looked at twice and not once for each
 * read.
 *
 * Strictness: what is refused is what redis-server refuses (a count below 1, a missing $, a length
 * that is no number) and a missing CR LF behind a bulk string, which it does not look at: bytes
 * after it would be taken for a command that nobody sent.
 *
 * Threads: one. Rejected: mmap, since a read error would be a signal, and src/mem/ owns it. */
#include "persist/aof_scan.h"

#include "base/assert.h"
#include "base/number.h"
#include "mem/mem.h"
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)1 << 20)
#define HEADER_MAX 32          /* a line with a count or length, and its end */
#define NOTE_MAX 4096          /* a line with # */
#define ARGS_MAX (1024 * 1024) /* of a command, as the protocol has it */
#define BULK_MAX ((int64_t)1 << 40)

enum kv_err kv_aof_scan_init(struct kv_aof_scan *s, int fd, uint64_t offset)
{
    struct stat st;
    memset(s, 0, sizeof(*s));
    s->fd = fd;
    s->offset = offset;
    if (fstat(fd, &st) != 0 || lseek(fd, (off_t)offset, SEEK_SET) < 0)
        return KV_ERR_IO;
    s->file_size = (uint64_t)st.st_size;
    s->buf = kv_mem_try_alloc(BUFFER_BYTES, KV_MEM_OTHER);
    if (s->buf == NULL)
        return KV_ERR_NOMEM;
    s->capacity = BUFFER_BYTES;
    return KV_OK;
}

void kv_aof_scan_release(struct kv_aof_scan *s)
{
    kv_mem_free(s->buf, s->capacity, KV_MEM_OTHER);
    memset(s, 0, sizeof(*s));
}

bool kv_aof_scan_fill(struct kv_aof_scan *s)
{
    size_t left = s->len - s->pos;
    memmove(s->buf, s->buf + s->pos, left);
    s->pos = 0;
    s->len = left;
    /* What the file does not have is never read, however long it claims to be. */
    uint64_t rest = s->file_size > s->offset ? s->file_size - s->offset : 0;
    size_t want = (size_t)KV_MIN((uint64_t)s->need, rest);
    if (want > s->capacity) {
        char *buf = kv_mem_try_realloc(s->buf, s->capacity, want, KV_MEM_OTHER);
        if (buf == NULL) {
            errno = ENOMEM;
            return false;
        }
        s->buf = buf;
        s->capacity = want;
    }
    while (s->len < s->capacity && !s->ended) {
        ssize_t n = read(s->fd, s->buf + s->len, s->capacity - s->len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        s->ended = n == 0;
        s->len += (size_t)n;
    }
    return true;
}

static enum kv_aof_found bad(struct kv_aof_scan *s, const char *why)
{
    s->fault = why;
    return KV_AOF_BAD;
}

/* The buffer ends at `need` bytes behind the item's start or before. */
static enum kv_aof_found more(struct kv_aof_scan *s, size_t need)
{
    s->need = need;
    uint64_t rest = s->file_size > s->offset ? s->file_size - s->offset : 0;
    if (s->ended || need > rest + HEADER_MAX)
        return KV_AOF_TRUNCATED;
    return KV_AOF_MORE;
}

/* A header line at *at: mark, number, CR LF. */
static enum kv_aof_found take_header(struct kv_aof_scan *s, size_t *at, char mark, int64_t *number)
{
    const char *line = s->buf + *at;
    size_t have = s->len - *at;
    if (have > 0 && line[0] != mark)
        return bad(s, mark == '*' ? "no command begins here" : "an argument does not begin with $");
    const char *end = have > 0 ? memchr(line, '\n', KV_MIN(have, (size_t)HEADER_MAX)) : NULL;
    if (end == NULL && have >= HEADER_MAX)
        return bad(s, "a count or length has no end");
    if (end == NULL)
        return more(s, *at - s->pos + HEADER_MAX);
    size_t digits = (size_t)(end - line) - 1;
    if (digits > 0 && line[digits] == '\r')
        digits--;
    else
        return bad(s, "a line does not end with CR LF");
    if (!kv_int_parse(kv_slice(line + 1, digits), number))
        return bad(s, "a count or length is no number");
    *at += (size_t)(end - line) + 1;
    return KV_AOF_COMMAND;
}

static enum kv_aof_found take_note(struct kv_aof_scan *s, struct kv_aof_item *item)
{
    const char *start = s->buf + s->pos;
    size_t have = s->len - s->pos;
    const char *end = memchr(start, '\n', KV_MIN(have, (size_t)NOTE_MAX));
    if (end == NULL && have >= NOTE_MAX)
        return bad(s, "a line with # has no end");
    if (end == NULL)
        return more(s, NOTE_MAX);
    item->len = (size_t)(end - start) + 1;
    return KV_AOF_NOTE;
}

static enum kv_aof_found take_command(struct kv_aof_scan *s, struct kv_aof_item *item)
{
    size_t at = s->pos;
    int64_t argc, len;
    enum kv_aof_found found = take_header(s, &at, '*', &argc);
    if (found != KV_AOF_COMMAND)
        return found;
    if (argc < 1 || argc > ARGS_MAX)
        return bad(s, "a command has too few or too many arguments");
    item->argc = (uint64_t)argc;
    for (int64_t i = 0; i < argc; i++) {
        found = take_header(s, &at, '$', &len);
        if (found != KV_AOF_COMMAND)
            return found;
        if (len < 0 || len > BULK_MAX)
            return bad(s, "an argument has no possible length");
        size_t rest = s->len - at;
        if (rest < (size_t)len + 2)
            return more(s, at - s->pos + (size_t)len + 2);
        if (i < KV_AOF_ARGS_SHOWN)
            item->argv[i] = kv_slice(s->buf + at, (size_t)len);
        at += (size_t)len;
        if (s->buf[at] != '\r' || s->buf[at + 1] != '\n')
            return bad(s, "an argument is longer than its length");
        at += 2;
    }
    item->len = at - s->pos;
    return KV_AOF_COMMAND;
}

enum kv_aof_found kv_aof_scan_next(struct kv_aof_scan *s, struct kv_aof_item *item)
{
    item->start = s->buf + s->pos;
    item->offset = s->offset;
    item->argc = 0;
    if (s->pos == s->len) {
        s->need = HEADER_MAX;
        return s->ended ? KV_AOF_END : KV_AOF_MORE;
    }
    enum kv_aof_found found = s->buf[s->pos] == '#' ? take_note(s, item) : take_command(s, item);
    if (found == KV_AOF_COMMAND || found == KV_AOF_NOTE) {
        s->pos += item->len;
        s->offset += item->len;
    }
    return found;
}
