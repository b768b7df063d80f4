/* The whole engine with the real command table: whatever a client sends, nothing crashes, the
 * keyspace passes its check, and all memory comes back when the keys and the client are gone.
 *
 * The first byte of an input chooses the form, the second a try allocation that fails (0: none).
 * Form 0: the rest is the request stream as it is. Form 1: the rest is decoded into command lines
 * from the table's own names and a list of words, which gets further than bytes do. SHUTDOWN and
 * DEBUG are taken out of the table; values are kept short, so that nothing takes long. */
#include "cmd/table.h"
#include "fuzz/input.h"
#include "library.h"

#define INPUT_MAX 4096
#define VALUE_MAX 40000
#define ARGS_MAX 12

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct kv_engine *engine;
static struct kv_command commands[512];
static struct kv_command_table table = {.commands = commands};

static const char *const words[] = {
    "a",
    "b",
    "c",
    "{a}1",
    "0",
    "1",
    "-1",
    "2",
    "10",
    "100",
    "1000",
    "1499",
    "11999",
    "2147483648",
    "NX",
    "XX",
    "GT",
    "LT",
    "GET",
    "EX",
    "PX",
    "EXAT",
    "KEEPTTL",
    "PERSIST",
    "IFEQ",
    "IFNE",
    "IFDEQ",
    "IFDNE",
    "MATCH",
    "COUNT",
    "TYPE",
    "*",
    "string",
    "AND",
    "OR",
    "XOR",
    "NOT",
    "DIFF",
    "ONE",
    "SET",
    "INCRBY",
    "OVERFLOW",
    "WRAP",
    "SAT",
    "FAIL",
    "u8",
    "i64",
    "u63",
    "#1",
    "BIT",
    "BYTE",
    "LEN",
    "IDX",
    "REPLACE",
    "DB",
    "ID",
    "LIST",
    "INFO",
    "KILL",
    "on",
    "off",
    "SKIP",
    "3",
    "HELP",
    "ENCODING",
    "USAGE",
    "STATS",
    "DOCS",
    "GETKEYS",
    "SAMPLES",
    "ASYNC",
    "SYNC",
    "3.5",
    "1e400",
    "nan",
    "BYFLOAT",
    "LBOUND",
    "UBOUND",
    "SATURATE",
    "ENX",
    "",
    "PAUSE",
    "UNPAUSE",
    "ALL",
    "SETINFO",
    "LIB-NAME",
    "RESET",
    "TRACKING",
    "9223372036854775807",
    "-9223372036854775808",
};

/* The real table without what would end the process or change it. */
static void copy_table(void)
{
    KV_ASSERT(kv_command_table.command_count <= KV_ARRAY_LEN(commands));
    for (uint32_t i = 0; i < kv_command_table.command_count; i++) {
        const struct kv_command *c = &kv_command_table.commands[i];
        if (strcmp(c->name, "shutdown") != 0 && strcmp(c->name, "debug") != 0)
            commands[table.command_count++] = *c;
    }
    table.id_count = kv_command_table.id_count;
}

static void start(void)
{
    struct kv_options options;
    kv_mem_init();
    kv_clock_init();
    kv_log_set_level(KV_LOG_NOTHING);
    kv_options_default(&options);
    options.proto_max_bulk_len = VALUE_MAX;
    options.command_log[KV_COMMAND_LOG_SLOW].limit = -1;
    copy_table();
    engine = kv_engine_create(&options, &table);
    kv_worker_attach(kv_engine_worker(engine, 0));
}

static void decode_argument(struct input *in, struct library_bytes *to)
{
    char header[32];
    uint8_t b = input_byte(in);
    struct library_bytes arg = {0};
    if (b < KV_ARRAY_LEN(words)) {
        library_append(&arg, words[b], strlen(words[b]));
    } else if (b < 224) {
        for (unsigned i = 0; i < b % 16u; i++) {
            char c = (char)input_byte(in);
            library_append(&arg, &c, 1);
        }
    } else {
        size_t len = (size_t)input_number(in, 2) % VALUE_MAX;
        while (arg.len < len)
            library_append(&arg, "x", 1);
    }
    library_append(to, header, (size_t)sprintf(header, "$%zu\r\n", arg.len));
    library_append(to, arg.bytes, arg.len);
    library_append(to, "\r\n", 2);
    library_release(&arg);
}

/* One command line: name, subcommand where there are some, arguments. */
static void decode_line(struct input *in, struct library_bytes *to)
{
    char header[96];
    const struct kv_command *cmd = &commands[input_byte(in) % table.command_count];
    const char *sub = NULL;
    uint8_t shape = input_byte(in);
    if (cmd->sub_count > 0 && shape < 240)
        sub = cmd->subs[shape % cmd->sub_count].name;
    int args = input_byte(in) % ARGS_MAX;
    int n = sprintf(header, "*%d\r\n$%zu\r\n%s\r\n", 1 + (sub != NULL) + args, strlen(cmd->name),
                    cmd->name);
    library_append(to, header, (size_t)n);
    if (sub != NULL)
        library_append(to, header, (size_t)sprintf(header, "$%zu\r\n%s\r\n", strlen(sub), sub));
    for (int i = 0; i < args; i++)
        decode_argument(in, to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (engine == NULL)
        start();
    if (size < 2 || size > INPUT_MAX)
        return 0;
    struct input in = {data + 2, data + size};
    struct library_bytes stream = {0}, reply = {0};
    if ((data[0] & 1) != 0)
        while (input_more(&in))
            decode_line(&in, &stream);
    else
        library_append(&stream, data + 2, size - 2);
    struct kv_worker *w = kv_engine_worker(engine, 0);
    int64_t before = kv_mem_used(KV_MEM_CLIENT) + kv_mem_used(KV_MEM_CLIENT_INPUT);
    struct kv_client *c = kv_client_create_virtual(w);
    kv_mem_fail_try(data[1]);
    kv_client_feed(c, stream.bytes, stream.len);
    kv_mem_fail_try(0);
    library_take(c, &reply);
    kv_engine_unpause(engine);
    kv_store_check(kv_engine_store(engine));
    kv_client_destroy(c);
    kv_worker_poll(w, 0);
    library_flush(engine);
    library_background_wait(engine);
    library_release(&stream);
    library_release(&reply);
    KV_ASSERT(kv_mem_used_dataset() == 0);
    KV_ASSERT(kv_mem_used(KV_MEM_WATCH) == 0);
    KV_ASSERT(kv_mem_used(KV_MEM_CLIENT) + kv_mem_used(KV_MEM_CLIENT_INPUT) == before);
    return 0;
}
