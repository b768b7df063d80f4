/* Manifests of append-only logs: parsing, printing, and the changes that a log goes through.
 *
 * Files are kept in the order in which they are written: base, history, incr files. A parsed file
 * may have them in any order but for incr files, whose numbers must rise, since their order is the
 * order of the data.
 *
 * A line is split into words; a word in double quotes may hold anything, with \", \\, \n, \r, \t
 * and \xHH. Names are quoted only when they need it.
 *
 * Threads: see the header. Rejected: keeping three lists, as a manifest has a handful of lines and
 * every change goes through a copy of it. */
#include "persist/manifest.h"

#include "base/assert.h"
#include "base/file.h"
#include "base/number.h"
#include "mem/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORDS_MAX 64 /* on a line */

void kv_manifest_init(struct kv_manifest *m)
{
    memset(m, 0, sizeof(*m));
}

void kv_manifest_release(struct kv_manifest *m)
{
    kv_mem_free(m->files, m->capacity * sizeof(*m->files), KV_MEM_OTHER);
    kv_manifest_init(m);
}

void kv_manifest_copy(struct kv_manifest *to, const struct kv_manifest *from)
{
    *to = *from;
    to->capacity = from->count;
    to->files = NULL;
    if (from->count == 0)
        return;
    to->files = kv_mem_alloc(from->count * sizeof(*to->files), KV_MEM_OTHER);
    memcpy(to->files, from->files, from->count * sizeof(*to->files));
}

static struct kv_manifest_file *insert(struct kv_manifest *m, uint32_t at)
{
    KV_ASSERT(at <= m->count);
    if (m->count == m->capacity) {
        uint32_t capacity = m->capacity == 0 ? 4 : m->capacity * 2;
        m->files = kv_mem_realloc(m->files, m->capacity * sizeof(*m->files),
                                  capacity * sizeof(*m->files), KV_MEM_OTHER);
        m->capacity = capacity;
    }
    memmove(&m->files[at + 1], &m->files[at], (m->count - at) * sizeof(*m->files));
    m->count++;
    memset(&m->files[at], 0, sizeof(m->files[at]));
    return &m->files[at];
}

/* Where the first file of a later kind stands. */
static uint32_t end_of(const struct kv_manifest *m, enum kv_manifest_type type)
{
    uint32_t at = 0;
    while (at < m->count &&
           (m->files[at].type == KV_MANIFEST_BASE ||
            (type != KV_MANIFEST_BASE && m->files[at].type == KV_MANIFEST_HISTORY) ||
            type == KV_MANIFEST_INCR))
        at++;
    return at;
}

/* --- parsing --- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* One escape behind a backslash; *p is moved over it. */
static char unescape(char **p)
{
    char c = *(*p)++;
    if (c == 'x' && hex_digit((*p)[0]) >= 0 && hex_digit((*p)[1]) >= 0) {
        c = (char)(hex_digit((*p)[0]) * 16 + hex_digit((*p)[1]));
        *p += 2;
        return c;
    }
    return c == 'n' ? '\n' : c == 'r' ? '\r' : c == 't' ? '\t' : c;
}

/* The word at *p, unquoted in place and terminated; NULL: a quote has no end. */
static char *take_word(char **p)
{
    char *word = *p, *to = *p, *from = *p;
    if (*from != '"') {
        while (*from != '\0' && *from != ' ' && *from != '\t')
            from++;
        *p = from + (*from != '\0');
        *from = '\0';
        return word;
    }
    from++;
    while (*from != '"') {
        if (*from == '\0')
            return NULL;
        char c = *from++;
        *to++ = c == '\\' && *from != '\0' ? unescape(&from) : c;
    }
    from++;
    if (*from != '\0' && *from != ' ' && *from != '\t')
        return NULL;
    *p = from + (*from != '\0');
    *to = '\0';
    return word;
}

static int split(char *line, char *words[WORDS_MAX])
{
    int count = 0;
    for (char *p = line;;) {
        while (*p == ' ' || *p == '\t')
            p++;
        if (*p == '\0')
            return count;
        if (count == WORDS_MAX || (words[count++] = take_word(&p)) == NULL)
            return -1;
    }
}

/* Why a file cannot stand there, or NULL. */
static const char *add_file(struct kv_manifest *m, const struct kv_manifest_file *file)
{
    if (file->type == KV_MANIFEST_BASE) {
        if (kv_manifest_base(m) != NULL)
            return "Found duplicate base file information";
        m->base_seq = file->seq;
    } else if (file->type == KV_MANIFEST_INCR) {
        if (file->seq <= m->incr_seq)
            return "Found a non-monotonic sequence number";
        m->incr_seq = file->seq;
    } else if (file->type != KV_MANIFEST_HISTORY) {
        return "Unknown AOF file type";
    }
    *insert(m, end_of(m, file->type)) = *file;
    return NULL;
}

/* Why a line is none, or NULL. */
static const char *parse_line(struct kv_manifest *m, char *line)
{
    static const char bad[] = "Invalid AOF manifest file format";
    char *words[WORDS_MAX];
    struct kv_manifest_file file = {0};
    int count = split(line, words);
    if (count < 6 || count % 2 != 0)
        return bad;
    for (int i = 0; i < count; i += 2) {
        const char *value = words[i + 1];
        if (strcmp(words[i], "file") == 0) {
            if (strchr(value, '/') != NULL || strcmp(value, "..") == 0 || strcmp(value, ".") == 0)
                return "File can't be a path, just a filename";
            if (strlen(value) >= sizeof(file.name))
                return bad;
            memcpy(file.name, value, strlen(value) + 1);
        } else if (strcmp(words[i], "seq") == 0) {
            if (!kv_uint_parse(kv_slice_cstr(value), &file.seq))
                return bad;
        } else if (strcmp(words[i], "type") == 0) {
            file.type = (enum kv_manifest_type)(unsigned char)value[0];
        }
    }
    if (file.name[0] == '\0' || file.seq == 0 || file.type == 0)
        return bad;
    return add_file(m, &file);
}

static enum kv_err refuse(struct kv_manifest *m, struct kv_manifest_fault *fault,
                          const char *reason)
{
    fault->reason = reason;
    kv_manifest_release(m);
    return KV_ERR_SYNTAX;
}

enum kv_err kv_manifest_parse(struct kv_manifest *m, struct kv_slice text,
                              struct kv_manifest_fault *fault)
{
    char line[KV_MANIFEST_LINE];
    kv_manifest_init(m);
    memset(fault, 0, sizeof(*fault));
    const char *pos = text.ptr, *end = text.ptr + text.len;
    for (uint32_t number = 1; pos < end; number++) {
        const char *newline = memchr(pos, '\n', (size_t)(end - pos));
        size_t len = newline == NULL ? 0 : (size_t)(newline - pos);
        fault->line = number;
        if (newline == NULL || len >= sizeof(line) - 1) {
            fault->line = 0;
            return refuse(m, fault, "The AOF manifest file contains too long line");
        }
        memcpy(line, pos, len);
        line[len] = '\0';
        pos = newline + 1;
        while (len > 0 && strchr(" \t\r", line[len - 1]) != NULL)
            line[--len] = '\0';
        memcpy(fault->text, line, len + 1);
        if (line[0] == '#')
            continue;
        const char *reason =
            memchr(line, '\0', len) != NULL ? "Invalid AOF manifest file format" : NULL;
        if (reason == NULL)
            reason = parse_line(m, line);
        if (reason != NULL)
            return refuse(m, fault, reason);
    }
    fault->line = 0;
    if (m->count == 0)
        return refuse(m, fault, "Found an empty AOF manifest");
    return KV_OK;
}

/* --- files --- */

bool kv_manifest_path(char *path, size_t size, const char *folder, const char *name,
                      const char *suffix)
{
    int len = snprintf(path, size, "%s/%s%s", folder, name, suffix);
    if (len > 0 && (size_t)len < size)
        return true;
    errno = ENAMETOOLONG;
    return false;
}

static enum kv_err read_whole(int fd, char **bytes, size_t *size)
{
    struct stat st;
    size_t have = 0;
    if (fstat(fd, &st) != 0)
        return KV_ERR_IO;
    *size = (size_t)st.st_size;
    if (!S_ISREG(st.st_mode) || *size > KV_MANIFEST_BYTES) {
        errno = EFBIG;
        return KV_ERR_IO;
    }
    *bytes = kv_mem_alloc(*size + 1, KV_MEM_OTHER);
    while (have < *size) {
        ssize_t n = read(fd, *bytes + have, *size - have);
        if (n <= 0 && errno == EINTR && n < 0)
            continue;
        if (n <= 0) {
            kv_mem_free(*bytes, *size + 1, KV_MEM_OTHER);
            if (n == 0)
                errno = EIO;
            return KV_ERR_IO;
        }
        have += (size_t)n;
    }
    return KV_OK;
}

enum kv_err kv_manifest_load(struct kv_manifest *m, const char *folder, const char *name,
                             struct kv_manifest_fault *fault)
{
    char path[PATH_MAX], *bytes;
    size_t size;
    int fd;
    kv_manifest_init(m);
    memset(fault, 0, sizeof(*fault));
    if (!kv_manifest_path(path, sizeof(path), folder, name, ".manifest"))
        return KV_ERR_IO;
    if (kv_file_open(path, O_RDONLY, 0, &fd) != KV_OK)
        return errno == ENOENT || errno == ENOTDIR ? KV_ERR_NOTFOUND : KV_ERR_IO;
    enum kv_err err = read_whole(fd, &bytes, &size);
    int error = errno;
    close(fd);
    errno = error;
    if (err != KV_OK)
        return err;
    err = kv_manifest_parse(m, kv_slice(bytes, size), fault);
    kv_mem_free(bytes, size + 1, KV_MEM_OTHER);
    return err;
}

static bool needs_quotes(const char *name)
{
    for (const char *p = name; *p != '\0'; p++)
        if (*p <= ' ' || *p == '"' || *p == '\\' || *p == '\'' || *p == 127)
            return true;
    return false;
}

static size_t print_name(char *to, const char *name)
{
    char *start = to;
    if (!needs_quotes(name)) {
        memcpy(to, name, strlen(name));
        return strlen(name);
    }
    *to++ = '"';
    for (const char *p = name; *p != '\0'; p++) {
        if (*p == '"' || *p == '\\') {
            *to++ = '\\';
            *to++ = *p;
        } else if (*p > 0 && (*p < ' ' || *p == 127)) {
            to += snprintf(to, 5, "\\x%02x", (unsigned)*p);
        } else {
            *to++ = *p;
        }
    }
    *to++ = '"';
    return (size_t)(to - start);
}

enum kv_err kv_manifest_store_told(const struct kv_manifest *m, const char *folder,
                                   const char *name, bool *visible)
{
    char path[PATH_MAX];
    *visible = false;
    if (!kv_manifest_path(path, sizeof(path), folder, name, ".manifest"))
        return KV_ERR_IO;
    size_t size = (size_t)m->count * (KV_MANIFEST_NAME * 4 + 64) + 1, len = 0;
    char *text = kv_mem_alloc(size, KV_MEM_OTHER);
    for (uint32_t i = 0; i < m->count; i++) {
        const struct kv_manifest_file *f = &m->files[i];
        memcpy(text + len, "file ", 5);
        len += 5;
        len += print_name(text + len, f->name);
        len += (size_t)snprintf(text + len, size - len, " seq %llu type %c\n",
                                (unsigned long long)f->seq, (char)f->type);
    }
    KV_ASSERT(len < size);
    enum kv_err err = kv_file_replace_told(path, kv_slice(text, len), 0644, visible);
    kv_mem_free(text, size, KV_MEM_OTHER);
    return err;
}

enum kv_err kv_manifest_store(const struct kv_manifest *m, const char *folder, const char *name)
{
    bool visible;
    return kv_manifest_store_told(m, folder, name, &visible);
}

/* --- looking and changing --- */

bool kv_manifest_ends_at(const struct kv_manifest *m, const char *folder, uint32_t index)
{
    char path[PATH_MAX];
    struct stat st;
    KV_ASSERT(index < m->count);
    if (m->files[index].type != KV_MANIFEST_INCR)
        return index + 1 == m->count;
    for (uint32_t i = index + 1; i < m->count; i++)
        if (!kv_manifest_path(path, sizeof(path), folder, m->files[i].name, "") ||
            stat(path, &st) != 0 || st.st_size != 0)
            return false;
    return true;
}

const struct kv_manifest_file *kv_manifest_base(const struct kv_manifest *m)
{
    return m->count > 0 && m->files[0].type == KV_MANIFEST_BASE ? &m->files[0] : NULL;
}

const struct kv_manifest_file *kv_manifest_last_incr(const struct kv_manifest *m)
{
    const struct kv_manifest_file *last = m->count > 0 ? &m->files[m->count - 1] : NULL;
    return last != NULL && last->type == KV_MANIFEST_INCR ? last : NULL;
}

const struct kv_manifest_file *kv_manifest_add_incr(struct kv_manifest *m, const char *name)
{
    struct kv_manifest_file *f = insert(m, m->count);
    f->seq = ++m->incr_seq;
    f->type = KV_MANIFEST_INCR;
    snprintf(f->name, sizeof(f->name), "%.200s.%llu.incr.aof", name, (unsigned long long)f->seq);
    return f;
}

const struct kv_manifest_file *kv_manifest_add_base(struct kv_manifest *m, const char *name,
                                                    const char *suffix, uint64_t from_incr)
{
    for (uint32_t i = 0; i < m->count; i++)
        if (m->files[i].type == KV_MANIFEST_BASE ||
            (m->files[i].type == KV_MANIFEST_INCR && m->files[i].seq < from_incr))
            m->files[i].type = KV_MANIFEST_HISTORY;
    struct kv_manifest_file *f = insert(m, 0);
    f->seq = ++m->base_seq;
    f->type = KV_MANIFEST_BASE;
    snprintf(f->name, sizeof(f->name), "%.200s.%llu.base.%s", name, (unsigned long long)f->seq,
             suffix);
    return f;
}

void kv_manifest_adopt_base(struct kv_manifest *m, const char *name)
{
    KV_ASSERT(kv_manifest_base(m) == NULL);
    KV_ASSERT(strlen(name) < KV_MANIFEST_NAME);
    struct kv_manifest_file *f = insert(m, 0);
    f->seq = ++m->base_seq;
    f->type = KV_MANIFEST_BASE;
    memcpy(f->name, name, strlen(name) + 1);
}

void kv_manifest_drop_history(struct kv_manifest *m)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < m->count; i++)
        if (m->files[i].type != KV_MANIFEST_HISTORY)
            m->files[kept++] = m->files[i];
    m->count = kept;
}
