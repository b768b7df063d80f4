/* Rules of a user: made word by word in a draft, then packed into one block.
 *
 * A draft's lists lie in an arena and grow by doubling, so a mistake or a lack of memory leaves
 * nothing to clean up. Texts are borrowed (from the words, from the rules that the draft began
 * with) until the rules are packed.
 *
 * Commands. A selector has a bit for each command, which is what checks look at, and the rules that
 * set these bits, in their order, which is what people read. A rule that a later one makes
 * meaningless is dropped: of the same category, of the same command or a subcommand of it, and a
 * first argument when its command is allowed or forbidden as a whole. What is left gives the same
 * bits when it is applied anew, so a file of users means the same after a restart, and "+@read"
 * goes on to mean what a later version has in that category. +@all and -@all drop everything.
 *
 * The packed block holds, in this order: the structure, the selectors, for each its bits and lists,
 * the passwords, all texts. Nothing in it is ever changed.
 *
 * Rejected: telling from the bits which categories describe them best, as Redis 7.0 does (what an
 * administrator wrote is lost, and commands of later versions are not where they were meant);
 * reference counts (whoever changes users has stopped everybody).
 */
#include "engine/acl.h"

#include "base/assert.h"
#include "engine/worker.h"
#include <string.h>

#define WORD_BITS 64

static size_t bitmap_words(const struct kv_engine *e)
{
    return (e->table->id_count + WORD_BITS - 1) / WORD_BITS;
}

static bool bit_get(const uint64_t *bits, uint32_t i)
{
    return bits[i / WORD_BITS] >> (i % WORD_BITS) & 1;
}

static void bit_put(uint64_t *bits, uint32_t i, bool on)
{
    uint64_t mask = (uint64_t)1 << (i % WORD_BITS);
    bits[i / WORD_BITS] = on ? bits[i / WORD_BITS] | mask : bits[i / WORD_BITS] & ~mask;
}

const char *kv_acl_mistake_text(enum kv_acl_mistake mistake)
{
    switch (mistake) {
    case KV_ACL_FINE:
        return "";
    case KV_ACL_SYNTAX:
        return "Syntax error";
    case KV_ACL_UNKNOWN_COMMAND:
        return "Unknown command or category name in ACL";
    case KV_ACL_FIRST_ARG_OF_SUBCOMMAND:
        return "Allowing first-arg of a subcommand is not supported";
    case KV_ACL_AFTER_ALL_KEYS:
        return "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does "
               "not have any effect. Try 'resetkeys' to start with an empty list of patterns";
    case KV_ACL_AFTER_ALL_CHANNELS:
        return "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and "
               "does not have any effect. Try 'resetchannels' to start with an empty list of "
               "channels";
    case KV_ACL_NO_SUCH_PASSWORD:
        return "The password you are trying to remove from the user does not exist";
    case KV_ACL_BAD_HASH:
        return "The password hash must be exactly 64 characters and contain only lowercase "
               "hexadecimal characters";
    case KV_ACL_NO_MEMORY:
        return "Out of memory";
    }
    return "";
}

/* --- lists in the arena --- */

/* Makes room for one more item; false: no memory. */
static bool grow(struct kv_arena *arena, void *list, uint32_t count, uint32_t *capacity,
                 size_t item_size)
{
    void *old;
    if (count < *capacity)
        return true;
    uint32_t more = *capacity == 0 ? 4 : *capacity * 2;
    void *bigger = kv_arena_try_alloc(arena, more * item_size);
    if (bigger == NULL)
        return false;
    memcpy(&old, list, sizeof(old));
    if (count > 0)
        memcpy(bigger, old, count * item_size);
    memcpy(list, &bigger, sizeof(bigger));
    *capacity = more;
    return true;
}

static bool copy_list(struct kv_arena *arena, void *to, const void *from, uint32_t count,
                      uint32_t *capacity, size_t item_size)
{
    void *copy = NULL;
    *capacity = count;
    if (count > 0) {
        copy = kv_arena_try_alloc(arena, count * item_size);
        if (copy == NULL)
            return false;
        memcpy(copy, from, count * item_size);
    }
    memcpy(to, &copy, sizeof(copy));
    return true;
}

/* --- commands --- */

static bool all_commands(const struct kv_engine *e, const struct kv_acl_selector *s)
{
    for (uint32_t i = 0; i < e->table->id_count; i++)
        if (!bit_get(s->commands, i))
            return false;
    return true;
}

static void set_all_commands(const struct kv_engine *e, struct kv_acl_selector *s, bool allow)
{
    memset(s->commands, allow ? 0xff : 0, bitmap_words(e) * sizeof(uint64_t));
    s->entry_count = 0;
    s->flags &= ~(uint32_t)KV_ACL_ALL_COMMANDS;
    if (allow)
        s->flags |= KV_ACL_ALL_COMMANDS;
}

static void drop_entry(struct kv_acl_selector *s, uint32_t i)
{
    s->entry_count--;
    memmove(&s->entries[i], &s->entries[i + 1], (s->entry_count - i) * sizeof(s->entries[0]));
}

/* Drops what is said of exactly this command, first arguments included. */
static void drop_command_entries(struct kv_acl_selector *s, uint16_t id)
{
    for (uint32_t i = s->entry_count; i-- > 0;)
        if (s->entries[i].kind != KV_ACL_CATEGORY && s->entries[i].id == id)
            drop_entry(s, i);
}

static void drop_first_args(struct kv_acl_selector *s, uint16_t id)
{
    for (uint32_t i = s->entry_count; i-- > 0;)
        if (s->entries[i].kind == KV_ACL_FIRST_ARG && s->entries[i].id == id)
            drop_entry(s, i);
}

static bool add_entry(struct kv_acl_draft *d, uint32_t selector, struct kv_acl_entry entry)
{
    struct kv_acl_selector *s = &d->rules.selectors[selector];
    if (!grow(d->arena, &s->entries, s->entry_count, &d->rooms[selector].entries, sizeof(entry)))
        return false;
    s->entries[s->entry_count++] = entry;
    return true;
}

static enum kv_acl_mistake set_category(struct kv_acl_draft *d, uint32_t selector,
                                        struct kv_slice name, bool allow)
{
    struct kv_acl_selector *s = &d->rules.selectors[selector];
    const struct kv_engine *e = d->engine;
    uint32_t bit = 0;
    if (kv_slice_is(name, "all")) {
        set_all_commands(e, s, allow);
        return KV_ACL_FINE;
    }
    while (bit < e->table->category_count && !kv_slice_is(name, e->table->categories[bit]))
        bit++;
    if (bit == e->table->category_count)
        return KV_ACL_UNKNOWN_COMMAND;
    if (!add_entry(d, selector, (struct kv_acl_entry){KV_ACL_CATEGORY, allow, (uint16_t)bit, {0}}))
        return KV_ACL_NO_MEMORY;
    for (uint32_t i = s->entry_count - 1; i-- > 0;)
        if (s->entries[i].kind == KV_ACL_CATEGORY && s->entries[i].id == bit)
            drop_entry(s, i);
    for (uint32_t id = 0; id < e->table->id_count; id++) {
        if (!(e->by_id[id]->acl_categories >> bit & 1))
            continue;
        bit_put(s->commands, id, allow);
        drop_first_args(s, (uint16_t)id);
    }
    return KV_ACL_FINE;
}

static enum kv_acl_mistake set_command(struct kv_acl_draft *d, uint32_t selector,
                                       const struct kv_command *cmd, bool allow)
{
    struct kv_acl_selector *s = &d->rules.selectors[selector];
    /* Room is made before anything is dropped. */
    if (!grow(d->arena, &s->entries, s->entry_count, &d->rooms[selector].entries,
              sizeof(s->entries[0])))
        return KV_ACL_NO_MEMORY;
    drop_command_entries(s, cmd->id);
    bit_put(s->commands, cmd->id, allow);
    for (int i = 0; i < cmd->sub_count; i++) {
        drop_command_entries(s, cmd->subs[i].id);
        bit_put(s->commands, cmd->subs[i].id, allow);
    }
    s->entries[s->entry_count++] = (struct kv_acl_entry){KV_ACL_COMMAND, allow, cmd->id, {0}};
    return KV_ACL_FINE;
}

/* +command|argument, of a command without subcommands. */
static enum kv_acl_mistake add_first_arg(struct kv_acl_draft *d, uint32_t selector,
                                         struct kv_slice word)
{
    struct kv_acl_selector *s = &d->rules.selectors[selector];
    size_t bar = word.len;
    while (bar > 0 && word.ptr[bar - 1] != '|')
        bar--;
    if (bar == 0)
        return KV_ACL_UNKNOWN_COMMAND;
    struct kv_slice arg = kv_slice(word.ptr + bar, word.len - bar);
    const struct kv_command *cmd = kv_engine_command_or_sub(d->engine, kv_slice(word.ptr, bar - 1));
    if (cmd == NULL)
        return KV_ACL_UNKNOWN_COMMAND;
    if (cmd->parent != NULL)
        return KV_ACL_FIRST_ARG_OF_SUBCOMMAND;
    if (arg.len == 0)
        return KV_ACL_SYNTAX;
    if (cmd->sub_count > 0)
        return KV_ACL_UNKNOWN_COMMAND;
    for (uint32_t i = 0; i < s->entry_count; i++) {
        const struct kv_acl_entry *have = &s->entries[i];
        if (have->kind == KV_ACL_FIRST_ARG && have->id == cmd->id && have->arg.len == arg.len &&
            strncasecmp(have->arg.ptr, arg.ptr, arg.len) == 0)
            return KV_ACL_FINE;
    }
    struct kv_acl_entry entry = {KV_ACL_FIRST_ARG, true, cmd->id, arg};
    return add_entry(d, selector, entry) ? KV_ACL_FINE : KV_ACL_NO_MEMORY;
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* White space or a zero byte, which would end a word of a file. */
static bool has_space(struct kv_slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if (is_space(s.ptr[i]) || s.ptr[i] == '\0')
            return true;
    return false;
}

bool kv_acl_name_valid(struct kv_slice name)
{
    return !has_space(name);
}

static enum kv_acl_mistake apply_command(struct kv_acl_draft *d, uint32_t selector,
                                         struct kv_slice word)
{
    bool allow = word.ptr[0] == '+';
    struct kv_slice name = kv_slice(word.ptr + 1, word.len - 1);
    if (name.len > 0 && name.ptr[0] == '@')
        return set_category(d, selector, kv_slice(name.ptr + 1, name.len - 1), allow);
    const struct kv_command *cmd = name.len == 0 ? NULL : kv_engine_command_or_sub(d->engine, name);
    if (cmd != NULL)
        return set_command(d, selector, cmd, allow);
    if (!allow || has_space(name))
        return KV_ACL_UNKNOWN_COMMAND;
    return add_first_arg(d, selector, name);
}

/* --- keys and channels --- */

static void set_all_keys(struct kv_acl_selector *s, bool all)
{
    s->key_count = 0;
    s->flags &= ~(uint32_t)KV_ACL_ALL_KEYS;
    s->flags |= all ? KV_ACL_ALL_KEYS : 0;
}

static enum kv_acl_mistake apply_pattern(struct kv_acl_draft *d, uint32_t selector,
                                         struct kv_slice word)
{
    struct kv_acl_selector *s = &d->rules.selectors[selector];
    struct kv_acl_pattern p = {.permissions = KV_ACL_READ | KV_ACL_WRITE};
    size_t at = 1;
    if (s->flags & KV_ACL_ALL_KEYS)
        return KV_ACL_AFTER_ALL_KEYS;
    if (word.ptr[0] == '%') {
        p.permissions = 0;
        for (; at < word.len && word.ptr[at] != '~'; at++) {
            char c = word.ptr[at];
            uint8_t bit = c == 'R' || c == 'r'   ? KV_ACL_READ
                          : c == 'W' || c == 'w' ? KV_ACL_WRITE
                                                 : 0;
            if (bit == 0 || p.permissions & bit)
                return KV_ACL_SYNTAX;
            p.permissions |= bit;
        }
        if (at == word.len || p.permissions == 0)
            return KV_ACL_SYNTAX;
        at++;
    }
    p.text = kv_slice(word.ptr + at, word.len - at);
    if (has_space(p.text))
        return KV_ACL_SYNTAX;
    uint32_t i = 0;
    while (i < s->key_count && !kv_slice_equal(s->keys[i].text, p.text))
        i++;
    if (i < s->key_count)
        p.permissions |= s->keys[i].permissions;
    /* %RW~* is printed as ~*, and so has to mean it. */
    if (p.permissions == (KV_ACL_READ | KV_ACL_WRITE) && kv_slice_equal(p.text, KV_SLICE("*"))) {
        set_all_keys(s, true);
        return KV_ACL_FINE;
    }
    if (i < s->key_count) {
        s->keys[i].permissions = p.permissions;
        return KV_ACL_FINE;
    }
    if (!grow(d->arena, &s->keys, s->key_count, &d->rooms[selector].keys, sizeof(p)))
        return KV_ACL_NO_MEMORY;
    s->keys[s->key_count++] = p;
    return KV_ACL_FINE;
}

static enum kv_acl_mistake apply_channel(struct kv_acl_draft *d, uint32_t selector,
                                         struct kv_slice word)
{
    struct kv_acl_selector *s = &d->rules.selectors[selector];
    struct kv_slice name = kv_slice(word.ptr + 1, word.len - 1);
    if (s->flags & KV_ACL_ALL_CHANNELS)
        return KV_ACL_AFTER_ALL_CHANNELS;
    if (has_space(name))
        return KV_ACL_SYNTAX;
    for (uint32_t i = 0; i < s->channel_count; i++)
        if (kv_slice_equal(s->channels[i], name))
            return KV_ACL_FINE;
    if (!grow(d->arena, &s->channels, s->channel_count, &d->rooms[selector].channels, sizeof(name)))
        return KV_ACL_NO_MEMORY;
    s->channels[s->channel_count++] = name;
    return KV_ACL_FINE;
}

static void set_all_channels(struct kv_acl_selector *s, bool all)
{
    s->channel_count = 0;
    s->flags &= ~(uint32_t)KV_ACL_ALL_CHANNELS;
    s->flags |= all ? KV_ACL_ALL_CHANNELS : 0;
}

/* --- selectors --- */

static bool channels_by_default(const struct kv_engine *e)
{
    return e->options.acl_pubsub_default == KV_ACL_PUBSUB_ALL;
}

/* Appends an empty selector. */
static bool add_selector(struct kv_acl_draft *d)
{
    struct kv_acl_rules *r = &d->rules;
    uint32_t capacity = d->selector_capacity;
    if (!grow(d->arena, &r->selectors, r->selector_count, &capacity, sizeof(*r->selectors)) ||
        !grow(d->arena, &d->rooms, r->selector_count, &d->selector_capacity, sizeof(*d->rooms)))
        return false;
    struct kv_acl_selector *s = &r->selectors[r->selector_count];
    *s = (struct kv_acl_selector){0};
    d->rooms[r->selector_count] = (struct kv_acl_room){0};
    s->commands = kv_arena_try_alloc(d->arena, bitmap_words(d->engine) * sizeof(uint64_t));
    if (s->commands == NULL)
        return false;
    set_all_commands(d->engine, s, false);
    set_all_channels(s, channels_by_default(d->engine));
    r->selector_count++;
    return true;
}

/* Words that may stand in a selector. */
static enum kv_acl_mistake apply_to_selector(struct kv_acl_draft *d, uint32_t selector,
                                             struct kv_slice word)
{
    struct kv_acl_selector *s = &d->rules.selectors[selector];
    if (kv_slice_is(word, "allkeys") || kv_slice_is(word, "~*"))
        set_all_keys(s, true);
    else if (kv_slice_is(word, "resetkeys"))
        set_all_keys(s, false);
    else if (kv_slice_is(word, "allchannels") || kv_slice_is(word, "&*"))
        set_all_channels(s, true);
    else if (kv_slice_is(word, "resetchannels"))
        set_all_channels(s, false);
    else if (kv_slice_is(word, "allcommands"))
        set_all_commands(d->engine, s, true);
    else if (kv_slice_is(word, "nocommands"))
        set_all_commands(d->engine, s, false);
    else if (word.ptr[0] == '~' || word.ptr[0] == '%')
        return apply_pattern(d, selector, word);
    else if (word.ptr[0] == '&')
        return apply_channel(d, selector, word);
    else if (word.ptr[0] == '+' || word.ptr[0] == '-')
        return apply_command(d, selector, word);
    else
        return KV_ACL_SYNTAX;
    return KV_ACL_FINE;
}

/* Takes the next word before a space from *rest; false: there is none. */
static bool next_plain(struct kv_slice *rest, struct kv_slice *word)
{
    while (rest->len > 0 && rest->ptr[0] == ' ')
        *rest = kv_slice(rest->ptr + 1, rest->len - 1);
    size_t len = 0;
    while (len < rest->len && rest->ptr[len] != ' ')
        len++;
    *word = kv_slice(rest->ptr, len);
    *rest = kv_slice(rest->ptr + len, rest->len - len);
    return len > 0;
}

static enum kv_acl_mistake apply_parentheses(struct kv_acl_draft *d, struct kv_slice word)
{
    struct kv_acl_rules *r = &d->rules;
    struct kv_slice rest = kv_slice(word.ptr + 1, word.len - 2), next;
    if (!add_selector(d))
        return KV_ACL_NO_MEMORY;
    enum kv_acl_mistake mistake = KV_ACL_FINE;
    while (mistake == KV_ACL_FINE && next_plain(&rest, &next)) {
        /* Where rules are read back, such a word would close the selector. */
        bool closes = next.ptr[next.len - 1] == ')';
        mistake = closes ? KV_ACL_SYNTAX : apply_to_selector(d, r->selector_count - 1, next);
    }
    if (mistake != KV_ACL_FINE)
        r->selector_count--;
    return mistake;
}

/* --- passwords --- */

static uint32_t find_password(const struct kv_acl_rules *r, const uint8_t hash[KV_SHA256_BYTES])
{
    for (uint32_t i = 0; i < r->password_count; i++)
        if (kv_sha256_equal(r->passwords[i], hash))
            return i;
    return UINT32_MAX;
}

static enum kv_acl_mistake apply_password(struct kv_acl_draft *d, struct kv_slice word)
{
    struct kv_acl_rules *r = &d->rules;
    struct kv_slice text = kv_slice(word.ptr + 1, word.len - 1);
    bool plain = word.ptr[0] == '>' || word.ptr[0] == '<';
    uint8_t hash[KV_SHA256_BYTES];
    if (plain)
        kv_sha256(text, hash);
    else if (!kv_sha256_parse(text, hash))
        return KV_ACL_BAD_HASH;
    uint32_t have = find_password(r, hash);
    if (word.ptr[0] == '<' || word.ptr[0] == '!') {
        if (have == UINT32_MAX)
            return KV_ACL_NO_SUCH_PASSWORD;
        r->password_count--;
        memmove(r->passwords[have], r->passwords[have + 1],
                (r->password_count - have) * sizeof(hash));
        return KV_ACL_FINE;
    }
    if (have == UINT32_MAX) {
        if (!grow(d->arena, &r->passwords, r->password_count, &d->password_capacity, sizeof(hash)))
            return KV_ACL_NO_MEMORY;
        memcpy(r->passwords[r->password_count++], hash, sizeof(hash));
    }
    r->flags &= ~(uint32_t)KV_ACL_NOPASS;
    return KV_ACL_FINE;
}

/* --- the user's words --- */

static void reset(struct kv_acl_draft *d)
{
    struct kv_acl_rules *r = &d->rules;
    r->flags = KV_ACL_SANITIZE;
    r->password_count = 0;
    r->selector_count = 1;
    set_all_commands(d->engine, &r->selectors[0], false);
    set_all_keys(&r->selectors[0], false);
    set_all_channels(&r->selectors[0], channels_by_default(d->engine));
}

/* Words about flags; false: it is none of these. */
static bool apply_flag(struct kv_acl_draft *d, struct kv_slice word)
{
    struct kv_acl_rules *r = &d->rules;
    uint32_t off = 0, on = 0;
    if (kv_slice_is(word, "on")) {
        on = KV_ACL_ON;
    } else if (kv_slice_is(word, "off")) {
        off = KV_ACL_ON;
    } else if (kv_slice_is(word, "nopass")) {
        on = KV_ACL_NOPASS;
        r->password_count = 0;
    } else if (kv_slice_is(word, "resetpass")) {
        off = KV_ACL_NOPASS;
        r->password_count = 0;
    } else if (kv_slice_is(word, "sanitize-payload")) {
        off = KV_ACL_SKIP_SANITIZE;
        on = KV_ACL_SANITIZE;
    } else if (kv_slice_is(word, "skip-sanitize-payload")) {
        off = KV_ACL_SANITIZE;
        on = KV_ACL_SKIP_SANITIZE;
    } else {
        return false;
    }
    r->flags = (r->flags & ~off) | on;
    return true;
}

enum kv_acl_mistake kv_acl_draft_apply(struct kv_acl_draft *d, struct kv_slice word)
{
    KV_ASSERT(d->rules.selector_count > 0);
    if (word.len == 0 || apply_flag(d, word))
        return KV_ACL_FINE;
    if (kv_slice_is(word, "reset")) {
        reset(d);
        return KV_ACL_FINE;
    }
    if (kv_slice_is(word, "clearselectors")) {
        d->rules.selector_count = 1;
        return KV_ACL_FINE;
    }
    if (memchr(">#<!", word.ptr[0], 4) != NULL)
        return apply_password(d, word);
    if (word.ptr[0] == '(' && word.len >= 2 && word.ptr[word.len - 1] == ')')
        return apply_parentheses(d, word);
    return apply_to_selector(d, 0, word);
}

bool kv_acl_draft_begin(struct kv_acl_draft *d, const struct kv_engine *e, struct kv_arena *arena,
                        const struct kv_acl_rules *from)
{
    *d = (struct kv_acl_draft){.engine = e, .arena = arena};
    if (from == NULL)
        return add_selector(d);
    d->rules.flags = from->flags;
    d->rules.password_count = from->password_count;
    if (!copy_list(arena, &d->rules.passwords, from->passwords, from->password_count,
                   &d->password_capacity, KV_SHA256_BYTES))
        return false;
    for (uint32_t i = 0; i < from->selector_count; i++) {
        const struct kv_acl_selector *old = &from->selectors[i];
        if (!add_selector(d))
            return false;
        struct kv_acl_selector *s = &d->rules.selectors[i];
        struct kv_acl_room *room = &d->rooms[i];
        memcpy(s->commands, old->commands, bitmap_words(e) * sizeof(uint64_t));
        s->flags = old->flags;
        s->entry_count = old->entry_count;
        s->key_count = old->key_count;
        s->channel_count = old->channel_count;
        if (!copy_list(arena, &s->entries, old->entries, old->entry_count, &room->entries,
                       sizeof(*s->entries)) ||
            !copy_list(arena, &s->keys, old->keys, old->key_count, &room->keys, sizeof(*s->keys)) ||
            !copy_list(arena, &s->channels, old->channels, old->channel_count, &room->channels,
                       sizeof(*s->channels)))
            return false;
    }
    return true;
}

enum kv_err kv_acl_next_word(struct kv_arena *arena, const struct kv_slice *argv, int argc, int *at,
                             struct kv_slice *word)
{
    KV_ASSERT(*at < argc);
    int first = *at, last = first;
    *word = argv[first];
    if (word->len == 0 || word->ptr[0] != '(') {
        *at = first + 1;
        return KV_OK;
    }
    size_t len = 0;
    for (; last < argc; last++) {
        len += argv[last].len + 1;
        if (argv[last].len > 0 && argv[last].ptr[argv[last].len - 1] == ')')
            break;
    }
    if (last == argc)
        return KV_ERR_SYNTAX;
    *at = last + 1;
    if (last == first)
        return KV_OK;
    char *text = kv_arena_try_alloc(arena, len);
    if (text == NULL)
        return KV_ERR_NOMEM;
    char *end = text;
    for (int i = first; i <= last; i++) {
        if (argv[i].len > 0)
            memcpy(end, argv[i].ptr, argv[i].len);
        end += argv[i].len;
        *end++ = ' ';
    }
    *word = kv_slice(text, len - 1);
    return KV_OK;
}

/* --- packing --- */

/* A place that moves on; `base` NULL measures. */
struct packer {
    char *base;
    size_t used;
};

static void *pack(struct packer *p, const void *from, size_t size)
{
    void *to = p->base == NULL ? NULL : p->base + p->used;
    if (to != NULL && size > 0)
        memcpy(to, from, size);
    p->used += size;
    return to;
}

static void pack_text(struct packer *p, struct kv_slice *s)
{
    const char *to = pack(p, s->ptr, s->len);
    if (to != NULL)
        s->ptr = to;
}

static void pack_lists(struct packer *p, const struct kv_engine *e, struct kv_acl_selector *to,
                       const struct kv_acl_selector *from)
{
    struct kv_acl_selector s = *from;
    s.commands = pack(p, from->commands, bitmap_words(e) * sizeof(uint64_t));
    s.entries = pack(p, from->entries, from->entry_count * sizeof(*from->entries));
    s.keys = pack(p, from->keys, from->key_count * sizeof(*from->keys));
    s.channels = pack(p, from->channels, from->channel_count * sizeof(*from->channels));
    if (to != NULL)
        *to = s;
}

static void pack_texts(struct packer *p, const struct kv_acl_selector *from,
                       struct kv_acl_selector *to)
{
    for (uint32_t i = 0; i < from->entry_count; i++) {
        struct kv_slice s = from->entries[i].arg;
        pack_text(p, to == NULL ? &s : &to->entries[i].arg);
    }
    for (uint32_t i = 0; i < from->key_count; i++) {
        struct kv_slice s = from->keys[i].text;
        pack_text(p, to == NULL ? &s : &to->keys[i].text);
    }
    for (uint32_t i = 0; i < from->channel_count; i++) {
        struct kv_slice s = from->channels[i];
        pack_text(p, to == NULL ? &s : &to->channels[i]);
    }
}

static struct kv_acl_rules *pack_rules(struct packer *p, const struct kv_acl_draft *d)
{
    const struct kv_acl_rules *from = &d->rules;
    uint32_t count = from->selector_count;
    struct kv_acl_rules *r = pack(p, from, sizeof(*from));
    struct kv_acl_selector *s = pack(p, from->selectors, count * sizeof(*s));
    for (uint32_t i = 0; i < count; i++)
        pack_lists(p, d->engine, s == NULL ? NULL : &s[i], &from->selectors[i]);
    void *passwords = pack(p, from->passwords, from->password_count * (size_t)KV_SHA256_BYTES);
    for (uint32_t i = 0; i < count; i++)
        pack_texts(p, &from->selectors[i], s == NULL ? NULL : &s[i]);
    if (r != NULL) {
        r->selectors = s;
        r->passwords = passwords;
    }
    return r;
}

static_assert(sizeof(struct kv_acl_rules) % 8 == 0 && sizeof(struct kv_acl_selector) % 8 == 0 &&
                  sizeof(struct kv_acl_entry) % 8 == 0 && sizeof(struct kv_acl_pattern) % 8 == 0,
              "packed lists stay aligned");

struct kv_acl_rules *kv_acl_draft_pack(const struct kv_acl_draft *d)
{
    struct packer p = {NULL, 0};
    (void)pack_rules(&p, d);
    size_t size = p.used;
    p = (struct packer){kv_mem_try_alloc(size, KV_MEM_CONFIG), 0};
    if (p.base == NULL)
        return NULL;
    struct kv_acl_rules *r = pack_rules(&p, d);
    KV_ASSERT(p.used == size);
    r->block_size = size;
    r->everything = false;
    for (uint32_t i = 0; i < r->selector_count; i++) {
        const uint32_t all = KV_ACL_ALL_KEYS | KV_ACL_ALL_CHANNELS;
        const struct kv_acl_selector *s = &r->selectors[i];
        r->everything |= (s->flags & all) == all && all_commands(d->engine, s);
    }
    return r;
}

void kv_acl_rules_release(struct kv_acl_rules *rules)
{
    if (rules != NULL)
        kv_mem_free(rules, rules->block_size, KV_MEM_CONFIG);
}

/* --- comparing --- */

static bool selectors_equal(const struct kv_acl_selector *a, const struct kv_acl_selector *b)
{
    if (a->flags != b->flags || a->entry_count != b->entry_count || a->key_count != b->key_count ||
        a->channel_count != b->channel_count)
        return false;
    for (uint32_t i = 0; i < a->entry_count; i++) {
        const struct kv_acl_entry *x = &a->entries[i], *y = &b->entries[i];
        if (x->kind != y->kind || x->allow != y->allow || x->id != y->id ||
            !kv_slice_equal(x->arg, y->arg))
            return false;
    }
    for (uint32_t i = 0; i < a->key_count; i++)
        if (a->keys[i].permissions != b->keys[i].permissions ||
            !kv_slice_equal(a->keys[i].text, b->keys[i].text))
            return false;
    for (uint32_t i = 0; i < a->channel_count; i++)
        if (!kv_slice_equal(a->channels[i], b->channels[i]))
            return false;
    return true;
}

bool kv_acl_rules_equal(const struct kv_acl_rules *a, const struct kv_acl_rules *b)
{
    if (a->flags != b->flags || a->password_count != b->password_count ||
        a->selector_count != b->selector_count)
        return false;
    for (uint32_t i = 0; i < a->password_count; i++)
        if (!kv_sha256_equal(a->passwords[i], b->passwords[i]))
            return false;
    for (uint32_t i = 0; i < a->selector_count; i++)
        if (!selectors_equal(&a->selectors[i], &b->selectors[i]))
            return false;
    return true;
}
