/* Values and due times of fields in one step: HGETEX, HSETEX, HGETDEL.
 *
 * HGETEX and HGETDEL reply the values where they lie and change the fields afterwards; should that
 * fail, the output is rewound, so that the client sees one error and no value. HSETEX looks at its
 * conditions first, of the key (NX, XX, as Valkey has them) and of the fields (FNX none of them
 * exists, FXX all do), and then sets all fields or none.
 *
 * A moment that has passed removes the fields, whether they were read or would have been written.
 *
 * Words may stand in any order between the key and the end of the line. The number behind FIELDS
 * tells how many words belong to it, so a field may be called EX.
 *
 * Change stream: HGETEX as HPEXPIREAT, HPERSIST or HDEL; HGETDEL as HDEL; HSETEX without conditions
 * and with the moment as PXAT.
 *
 * Failure: as HSET (hash.c).
 *
 * Threads: under the lock of the key's shard.
 */
#include "cmd/functions.h"
#include "cmd/hash_priv.h"
#include "cmd/helper.h"
#include "cmd/string_priv.h"

/* What a line says besides the fields. */
struct ex_line {
    struct kv_hash_fields fields; /* HSETEX: of `fields.names` every second word is a value */
    enum { LIFE_NONE, LIFE_TIME, LIFE_KEEP, LIFE_PERSIST } life;
    enum { ANY, ALL_NEW, ALL_THERE } field_condition;
    enum { KEY_ANY, KEY_NEW, KEY_THERE } key_condition;
    int64_t due; /* LIFE_TIME */
};

struct ex_grammar {
    bool sets;              /* HSETEX: conditions, KEEPTTL, values */
    const char *many_lives; /* error for more than one lifetime */
};

/* Reads a lifetime at *arg. False: it is none, or *failed and an error is replied. */
static bool read_life(struct kv_call *call, int *arg, const struct ex_grammar *g,
                      struct ex_line *line, bool *failed)
{
    static const struct {
        const char *word;
        int64_t unit_ms;
        bool relative;
    } times[] = {{"ex", 1000, true}, {"px", 1, true}, {"exat", 1000, false}, {"pxat", 1, false}};
    bool last = kv_call_arg_is(call, *arg, g->sets ? "keepttl" : "persist");
    size_t i = 0;
    while (i < KV_ARRAY_LEN(times) && !kv_call_arg_is(call, *arg, times[i].word))
        i++;
    if (!last && i == KV_ARRAY_LEN(times))
        return false;
    *failed = line->life != LIFE_NONE;
    if (*failed) {
        kv_call_error(call, g->many_lives);
        return false;
    }
    if (last) {
        line->life = g->sets ? LIFE_KEEP : LIFE_PERSIST;
        ++*arg;
        return true;
    }
    line->life = LIFE_TIME;
    *failed = *arg + 1 >= call->argc;
    if (*failed) {
        kv_hash_arity_error(call);
        return false;
    }
    int64_t base_ms = times[i].relative ? call->view.now_ms : 0;
    *failed = !kv_hash_moment(call, *arg + 1, times[i].unit_ms, base_ms, &line->due);
    *arg += 2;
    return !*failed;
}

/* Likewise a condition of HSETEX. */
static bool read_condition(struct kv_call *call, int *arg, struct ex_line *line, bool *failed)
{
    bool fnx = kv_call_arg_is(call, *arg, "fnx"), fxx = kv_call_arg_is(call, *arg, "fxx");
    bool nx = kv_call_arg_is(call, *arg, "nx"), xx = kv_call_arg_is(call, *arg, "xx");
    if (fnx || fxx) {
        *failed = line->field_condition != ANY;
        if (*failed)
            kv_call_error(call, "ERR Only one of FXX or FNX arguments can be specified");
        line->field_condition = fnx ? ALL_NEW : ALL_THERE;
    } else if (nx || xx) {
        *failed = line->key_condition != KEY_ANY;
        if (*failed)
            kv_call_error(call, "ERR Only one of NX or XX arguments can be specified");
        line->key_condition = nx ? KEY_NEW : KEY_THERE;
    } else {
        return false;
    }
    ++*arg;
    return !*failed;
}

/* Reads "FIELDS n ..." at *arg. */
static bool read_fields(struct kv_call *call, int *arg, const struct ex_grammar *g,
                        struct kv_hash_fields *f)
{
    int64_t count, step = g->sets ? 2 : 1;
    if (f->count != 0) {
        kv_call_error(call, "ERR FIELDS keyword specified multiple times");
        return false;
    }
    if (*arg + 1 >= call->argc) {
        kv_hash_arity_error(call);
        return false;
    }
    if (!kv_int_parse(call->argv[*arg + 1], &count) || count < 1 || count > INT32_MAX) {
        kv_call_error(call, "ERR invalid number of fields");
        return false;
    }
    if (count * step > call->argc - *arg - 2) {
        kv_hash_arity_error(call);
        return false;
    }
    f->names = call->argv + *arg + 2;
    f->count = (size_t)count;
    f->next = *arg + 2 + (int)(count * step);
    *arg = f->next;
    return true;
}

static bool read_line(struct kv_call *call, const struct ex_grammar *g, struct ex_line *line)
{
    *line = (struct ex_line){.due = KV_NOT_DUE};
    for (int arg = 2; arg < call->argc;) {
        bool failed = false;
        if (kv_call_arg_is(call, arg, "fields")) {
            if (!read_fields(call, &arg, g, &line->fields))
                return false;
            continue;
        }
        if (read_life(call, &arg, g, line, &failed) ||
            (!failed && g->sets && read_condition(call, &arg, line, &failed)))
            continue;
        if (!failed)
            kv_call_errorf(call, "ERR unknown argument: %.*s", KV_CMD_QUOTE(call->argv[arg]));
        return false;
    }
    if (line->fields.count == 0)
        kv_call_error(call, "ERR missing FIELDS argument");
    return line->fields.count != 0;
}

/* --- HGETEX, HGETDEL --- */

/* Replies the values of the fields and chooses those that will change. */
static void reply_and_choose(struct kv_call *call, const struct kv_entry *e,
                             const struct kv_hash_fields *f, struct kv_hash_chosen *c, bool removes,
                             bool persists)
{
    struct kv_hash h;
    kv_hash_open(&h, &call->view, e);
    kv_reply_array(call->out, f->count);
    for (size_t i = 0; i < f->count; i++) {
        struct kv_hash_field found;
        bool again = c->first[i] != i;
        if ((again && removes) || !kv_hash_find(&h, f->names[i], &found)) {
            kv_reply_null(call->out);
            continue;
        }
        kv_reply_slice(call->out, found.value);
        if (!again && (!persists || found.due != KV_NOT_DUE))
            c->names[c->count++] = f->names[i];
    }
}

void kv_cmd_hgetex(struct kv_call *call)
{
    static const struct ex_grammar grammar = {
        .many_lives = "ERR Only one of EX, PX, EXAT, PXAT or PERSIST arguments can be specified"};
    struct kv_hash_chosen c;
    struct ex_line line;
    struct kv_entry *e;
    if (!kv_hash_read_write(call, &e) || !read_line(call, &grammar, &line) ||
        !kv_hash_chosen_init(call, &line.fields, &c))
        return;
    bool past = line.life == LIFE_TIME && line.due <= call->view.now_ms;
    struct kv_out_mark mark = kv_out_mark(call->out);
    reply_and_choose(call, e, &line.fields, &c, past, line.life == LIFE_PERSIST);
    enum kv_err err = KV_OK;
    if (past)
        err = kv_hash_apply_delete(call, &e, &c);
    else if (line.life != LIFE_NONE)
        err = kv_hash_apply_due(call, &e, &c, line.due);
    if (err != KV_OK) {
        kv_out_rewind(call->out, &mark);
        kv_call_failed(call, err);
    }
}

void kv_cmd_hgetdel(struct kv_call *call)
{
    static const char mismatch[] =
        "ERR The `numfields` parameter must match the number of arguments";
    static const struct kv_hash_words words = {
        "ERR Mandatory argument FIELDS is missing or not at the right position",
        "ERR Number of fields must be a positive integer", mismatch};
    struct kv_hash_fields f;
    struct kv_hash_chosen c;
    struct kv_entry *e;
    if (!kv_hash_read_write(call, &e) || !kv_hash_fields_at(call, 2, &words, &f))
        return;
    if (f.next != call->argc) {
        kv_call_error(call, mismatch);
        return;
    }
    if (!kv_hash_chosen_init(call, &f, &c))
        return;
    struct kv_out_mark mark = kv_out_mark(call->out);
    reply_and_choose(call, e, &f, &c, true, false);
    enum kv_err err = kv_hash_apply_delete(call, &e, &c);
    if (err != KV_OK) {
        kv_out_rewind(call->out, &mark);
        kv_call_failed(call, err);
    }
}

/* --- HSETEX --- */

/* Whether the conditions hold. */
static bool holds(struct kv_call *call, const struct kv_entry *e, const struct ex_line *line)
{
    struct kv_hash h;
    struct kv_hash_field found;
    if ((line->key_condition == KEY_NEW && e != NULL) ||
        (line->key_condition == KEY_THERE && e == NULL))
        return false;
    if (line->field_condition == ANY)
        return true;
    kv_hash_open(&h, &call->view, e);
    for (size_t i = 0; i < line->fields.count; i++)
        if (kv_hash_find(&h, line->fields.names[2 * i], &found) !=
            (line->field_condition == ALL_THERE))
            return false;
    return true;
}

/* The moment has passed: what is there of the fields goes. */
static enum kv_err set_past(struct kv_call *call, struct kv_entry *e,
                            const struct kv_hash_fields *f)
{
    struct kv_slice *names = kv_arena_try_alloc(call->arena, f->count * sizeof(*names));
    if (names == NULL)
        return KV_ERR_NOMEM;
    for (size_t i = 0; i < f->count; i++)
        names[i] = f->names[2 * i];
    struct kv_hash_names n = {.names = names, .count = f->count, .arena = call->arena};
    enum kv_err err = e != NULL ? kv_hash_delete(&call->view, &call->keys[0], &e, &n) : KV_OK;
    if (n.done != 0) {
        kv_hash_announce_deleted(call, e);
        kv_hash_propagate_hdel(call, names, f->count);
    }
    return err;
}

/* Fields whose due times are to be kept but have passed lose them here, and so they must there. */
static void propagate_hidden(struct kv_call *call, const struct kv_entry *e,
                             const struct kv_hash_fields *f)
{
    struct kv_hash h;
    struct kv_hash_field found;
    kv_hash_open(&h, &call->view, e);
    for (size_t i = 0; h.may_hide && i < f->count; i++)
        if (!kv_hash_find(&h, f->names[2 * i], &found) && found.hidden)
            kv_hash_propagate_hidden(call, f->names[2 * i]);
}

static void propagate_set(struct kv_call *call, const struct ex_line *line, size_t pairs)
{
    struct kv_slice head[6] = {KV_SLICE("HSETEX"), kv_key_slice(&call->keys[0])};
    size_t n = 2;
    if (line->life == LIFE_KEEP) {
        head[n++] = KV_SLICE("KEEPTTL");
    } else if (line->life == LIFE_TIME) {
        head[n++] = KV_SLICE("PXAT");
        head[n++] = kv_call_int_text(call, line->due);
    }
    head[n++] = KV_SLICE("FIELDS");
    head[n++] = kv_call_int_text(call, (int64_t)pairs);
    kv_call_propagate_parts(call, head, n, line->fields.names, 2 * pairs);
}

static enum kv_err set_fields(struct kv_call *call, struct kv_entry *e, const struct ex_line *line)
{
    const struct kv_key *k = &call->keys[0];
    struct kv_hash_pairs p = {.words = line->fields.names,
                              .count = line->fields.count,
                              .due = line->life == LIFE_KEEP ? KV_HASH_KEEP_DUE : line->due,
                              .arena = call->arena};
    if (line->life == LIFE_KEEP)
        propagate_hidden(call, e, &line->fields);
    enum kv_err err = kv_hash_set(&call->view, k, &e, &p);
    if (p.done != 0) {
        kv_store_changed(&call->view, k, KV_EVENT_HASH, "hset");
        if (line->life == LIFE_TIME)
            kv_store_changed(&call->view, k, KV_EVENT_HASH, "hexpire");
        propagate_set(call, line, p.done);
    }
    return err;
}

/* HSETEX key [NX | XX] [FNX | FXX] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]
 *     FIELDS n field value [field value ...] */
void kv_cmd_hsetex(struct kv_call *call)
{
    static const struct ex_grammar grammar = {
        .sets = true,
        .many_lives = "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified"};
    struct ex_line line;
    struct kv_entry *e;
    if (!kv_hash_write(call, &e) || !read_line(call, &grammar, &line))
        return;
    if (!holds(call, e, &line)) {
        kv_reply_int(call->out, 0);
        return;
    }
    bool past = line.life == LIFE_TIME && line.due <= call->view.now_ms;
    enum kv_err err = past ? set_past(call, e, &line.fields) : set_fields(call, e, &line);
    if (err != KV_OK)
        kv_call_failed(call, err);
    else
        kv_reply_int(call->out, 1);
}
