/* Where the keys of a command line are.
 *
 * A command carries key specifications: how the first key is found (at a fixed argument, or behind
 * a keyword), and from there how many follow (up to an argument, or as many as a number says). They
 * are constants of the generated table, the command line is what a client sent, so everything that
 * comes from argv is checked and everything that comes from the table is asserted.
 *
 *     SET key value                 begin 1        range last 0,  step 1
 *     BITOP op dest key key         begin 2        range last 0,  step 1     two specifications:
 *                                   begin 3        range last -1, step 1     positions in order
 *     MSET key value key value      begin 1        range last -1, step 2
 *     MSETEX 2 key value key value  begin 1        keynum at 0, first 1, step 2
 *     X ... STREAMS key key id id   behind STREAMS range last -1, step 1, limit 2 (half of the
 * rest)
 *
 * Positions come in the order of the specifications. A specification by keyword that is not found
 * names no keys; every other one that does not fit the line makes the whole result -1, and the
 * engine then runs the command with no keys resolved, whose own checks answer the client.
 *
 * Nearly all commands have one specification by index, most of them for one key. That case is
 * decided before the general one; nothing here allocates, and all is pure and runs on any thread.
 *
 * A specification may be unknown to clients (SORT's, whose STORE may stand anywhere and whose
 * patterns name keys only with the values). A function then finds its key, or nobody does. So it is
 * with a keyword that may come several times, of which the last one counts (GEORADIUS' STORE), and
 * with a place that holds no key when the keys come elsewhere (MIGRATE's, before KEYS).
 *
 * Rejected: such a function for every command (as flexible, but then ACL rules, cluster routing and
 * clients could not be told where keys are); keeping positions as bits of one word (an
 * MSET may name a million keys).
 */
#include "engine/command.h"

#include "base/assert.h"
#include "base/number.h"

/* Where to write what is found. `count` goes on past `max`, so that the caller learns the need. */
struct sink {
    int *index_out;
    uint32_t *flags_out; /* or NULL */
    int max;
    int count;
};

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 32) : c;
}

/* Compares a slice with a C string, ASCII case ignored: < 0, 0, > 0. */
static int compare_nocase(struct kv_slice s, const char *word)
{
    for (size_t i = 0; i < s.len; i++) {
        int order = (unsigned char)lower(s.ptr[i]) - (unsigned char)lower(word[i]);
        /* The word's terminator is smaller than any byte but a zero one, which ends it too. */
        if (order != 0 || word[i] == '\0')
            return order != 0 ? order : 1;
    }
    return word[s.len] == '\0' ? 0 : -1;
}

const struct kv_command *kv_command_sub(const struct kv_command *cmd, struct kv_slice name)
{
    KV_ASSERT(cmd != NULL);
    KV_ASSERT(cmd->sub_count == 0 || cmd->subs != NULL);
    size_t low = 0;
    size_t high = cmd->sub_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = compare_nocase(name, cmd->subs[middle].name);
        if (order == 0) {
            KV_DASSERT(cmd->subs[middle].parent != NULL);
            return &cmd->subs[middle];
        }
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* First argument of a specification, or 0 when its keyword does not occur. A search from the front
 * ignores the last argument and one from the end the first: nothing would follow or precede it. */
static int first_argument(const struct kv_keyspec *spec, const struct kv_slice *argv, int argc)
{
    if (spec->find_key != NULL)
        return spec->find_key(argv, argc);
    if (spec->begin == KV_BEGIN_INDEX)
        return spec->begin_index;
    if (spec->begin == KV_BEGIN_UNKNOWN)
        return 0;
    KV_DASSERT(spec->begin == KV_BEGIN_KEYWORD);
    KV_DASSERT(spec->begin_keyword != NULL);
    KV_DASSERT(spec->begin_index != 0);
    if (spec->begin_index > 0) {
        for (int i = spec->begin_index; i < argc - 1; i++)
            if (compare_nocase(argv[i], spec->begin_keyword) == 0)
                return i + 1;
    } else {
        for (int i = argc + spec->begin_index; i > 1; i--)
            if (compare_nocase(argv[i], spec->begin_keyword) == 0)
                return i + 1;
    }
    return 0;
}

/* Last key and step of a specification that begins at *first, which a count moves on. False when
 * the arguments do not fit. 64-bit, since a client chooses the count. */
static bool key_range(const struct kv_keyspec *spec, const struct kv_slice *argv, int argc,
                      int64_t *first, int64_t *last, int *step)
{
    if (spec->find == KV_FIND_UNKNOWN) {
        *last = *first;
        *step = 1;
        return true;
    }
    KV_DASSERT(spec->find == KV_FIND_RANGE || spec->find == KV_FIND_KEYNUM);
    if (spec->find == KV_FIND_RANGE) {
        *step = spec->b;
        if (spec->a >= 0)
            *last = *first + spec->a;
        else if (spec->c <= 1)
            *last = argc + spec->a;
        else
            *last = *first + (argc - *first) / spec->c + spec->a;
        return true;
    }
    int64_t key_count;
    if (*first + spec->a >= argc || !kv_int_parse(argv[*first + spec->a], &key_count))
        return false;
    /* More keys than arguments never fit; refusing them here keeps the product small. */
    if (key_count <= 0 || key_count > argc)
        return false;
    *first += spec->b;
    *step = spec->c;
    *last = *first + (key_count - 1) * spec->c;
    return true;
}

static bool add_keys(const struct kv_keyspec *spec, const struct kv_slice *argv, int argc,
                     struct sink *sink)
{
    int64_t first = first_argument(spec, argv, argc);
    if (first == 0)
        return true;
    int64_t last;
    int step;
    /* Keys up to the end after others: there may be none (PFMERGE with a destination alone). */
    if (sink->count > 0 && first == argc && spec->find == KV_FIND_RANGE && spec->a < 0)
        return true;
    if (!key_range(spec, argv, argc, &first, &last, &step))
        return false;
    if (first >= argc || last >= argc || last < first)
        return false;
    KV_DASSERT(step > 0);
    KV_DASSERT(first > 0);
    for (int64_t i = first; i <= last; i += step) {
        if (sink->count < sink->max) {
            sink->index_out[sink->count] = (int)i;
            if (sink->flags_out != NULL)
                sink->flags_out[sink->count] = spec->flags;
        }
        sink->count++;
    }
    return true;
}

/* The line states that it has no keys, which its command allows. */
static bool states_no_keys(const struct kv_command *cmd, const struct kv_slice *argv, int argc)
{
    const struct kv_keyspec *spec = cmd->keyspecs;
    int64_t count;
    if (!(cmd->flags & KV_CMD_NO_MANDATORY_KEYS) || spec->begin != KV_BEGIN_INDEX ||
        spec->find != KV_FIND_KEYNUM || spec->begin_index + spec->a >= argc)
        return false;
    return kv_int_parse(argv[spec->begin_index + spec->a], &count) && count == 0;
}

int kv_command_keys(const struct kv_command *cmd, const struct kv_slice *argv, int argc,
                    int *index_out, uint32_t *flags_out, int max)
{
    KV_DASSERT(cmd != NULL);
    KV_DASSERT(argc > 0);
    KV_DASSERT(max == 0 || index_out != NULL);
    if (cmd->keyspec_count == 0)
        return 0;
    const struct kv_keyspec *spec = cmd->keyspecs;
    bool one_key = cmd->keyspec_count == 1 && spec->begin == KV_BEGIN_INDEX &&
                   spec->find == KV_FIND_RANGE && spec->a == 0 &&
                   (spec->flags & KV_KEY_NOT_KEY) == 0;
    if (KV_LIKELY(one_key)) {
        if (KV_UNLIKELY(spec->begin_index >= argc))
            return -1;
        if (KV_LIKELY(max > 0)) {
            index_out[0] = spec->begin_index;
            if (flags_out != NULL)
                flags_out[0] = spec->flags;
        }
        return 1;
    }
    if (states_no_keys(cmd, argv, argc))
        return 0;
    struct sink sink = {index_out, flags_out, max, 0};
    for (int i = 0; i < cmd->keyspec_count; i++)
        if ((spec[i].flags & KV_KEY_NOT_KEY) == 0 && !add_keys(&spec[i], argv, argc, &sink))
            return -1;
    return sink.count;
}
