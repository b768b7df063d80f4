#!/usr/bin/python3
"""Turns the command descriptions in commands/*.json into C.

    tools/gen_commands.py           rewrites what differs of the generated files in src/cmd
    tools/gen_commands.py --check   writes nothing; lists what differs and exits 1 when anything does

Generated: functions.h (prototypes), table.c (what the engine needs of every command), docs_table.h
and docs_<group>.c (what COMMAND DOCS prints). The output depends on the JSON files alone and is laid
out by clang-format. src/cmd/README.md explains the fields; whatever is unknown, missing or
contradicts another field is an error that names the file.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "commands"
TARGET = ROOT / "src" / "cmd"

# Order of enum kv_cmd_flags in src/engine/command.h. movablekeys is derived, batch is a field.
FLAGS = """write readonly denyoom admin pubsub noscript blocking loading stale skip_monitor
    skip_slowlog asking fast no_auth may_replicate no_async_loading no_multi allow_busy no_mandatory_keys
    protected touches_arbitrary_keys all_dbs sentinel experimental""".split()
# Order of kv_command_acl_categories, bit 0 first.
CATEGORIES = """keyspace read write set sortedset list hash string bitmap hyperloglog geo stream
    pubsub admin fast slow blocking dangerous connection transaction scripting""".split()
# Categories that follow from the flags and therefore are not written into the JSON.
DERIVED = ["read", "write", "pubsub", "admin", "fast", "slow", "blocking"]
KEY_FLAGS = """RO RW OW RM access update insert delete not_key incomplete
    variable_flags""".split()
MODES = ["free", "keys", "shards", "alone", "stop"]
GROUPS = """bitmap connection generic geo hash hyperloglog list pubsub server scripting set sorted-set
    string transactions""".split()
REPLIES = ["ok", "status", "int", "bulk", "null", "array", "map", "set", "verbatim", "none", "any"]
ARGUMENT_TYPES = """string integer double key pattern unix-time pure-token oneof block""".split()
DOC_FLAGS = ["deprecated", "syscmd"]
VERSION = re.compile(r"\d+\.\d+\.\d+")

# Field: (type, required).
COMMAND_FIELDS = {
    "name": (str, True), "container": (str, False), "summary": (str, True),
    "complexity": (str, True), "group": (str, True), "since": (str, True),
    "deprecated_since": (str, False), "replaced_by": (str, False), "doc_flags": (list, False),
    "arity": (int, True), "flags": (list, True), "acl": (list, True), "mode": (str, True),
    "batch": (bool, False), "member": (int, False), "function": (str, False), "alone": (str, False), "script": (bool, False), "tips": (list, False),
    "keys": (list, False), "arguments": (list, False), "reply": (list, False),
}
KEY_FIELDS = {
    "flags": (list, True), "begin": (dict, True), "find": (dict, True), "notes": (str, False),
    "function": (str, False),
}
ARGUMENT_FIELDS = {
    "name": (str, True), "type": (str, True), "token": (str, False), "key_spec": (int, False),
    "display": (str, False), "since": (str, False), "deprecated_since": (str, False),
    "optional": (bool, False), "multiple": (bool, False), "multiple_token": (bool, False),
    "arguments": (list, False),
}
LEVELS = {"RO", "RW", "OW", "RM"}


class Mistake(Exception):
    """A description that is wrong; the text names file and reason."""


def demand(condition, where, text):
    if not condition:
        raise Mistake(f"{where}: {text}")


def check_fields(where, value, fields):
    demand(isinstance(value, dict), where, "an object is expected")
    for name, item in value.items():
        demand(name in fields, where, f"unknown field '{name}'")
        demand(type(item) is fields[name][0], where, f"field '{name}' has the wrong type")
    for name, (_, required) in fields.items():
        demand(name in value or not required, where, f"field '{name}' is missing")


def check_words(where, words, allowed, what):
    demand(len(set(words)) == len(words), where, f"{what} are repeated")
    for word in words:
        demand(word in allowed, where, f"unknown word '{word}' in {what}")


def check_key(where, key):
    check_fields(where, key, KEY_FIELDS)
    check_words(where, key["flags"], KEY_FLAGS, "key flags")
    demand(len(LEVELS & set(key["flags"])) == (0 if "not_key" in key["flags"] else 1), where,
           "a key needs one of RO, RW, OW, RM, and what is no key none of them")
    begin, find = key["begin"], key["find"]
    if begin == {"unknown": True} and set(find) == {"unknown"}:
        demand(type(find["unknown"]) is str, where, "unknown keys are found by a function or ''")
        return
    demand(set(begin) in ({"index"}, {"keyword", "from"}), where, "begin is index or keyword, from")
    for name, value in begin.items():
        demand(type(value) is (str if name == "keyword" else int), where, f"{name} is no position")
    demand(begin.get("index", 1) >= 1, where, "index 0 is the command's name")
    demand(begin.get("from", 1) != 0, where, "a search for a keyword starts behind the name")
    demand(set(find) in ({"range"}, {"keynum"}), where, "find is range or keynum")
    numbers = next(iter(find.values()))
    demand(type(numbers) is list and [type(n) for n in numbers] == [int] * 3, where,
           "find needs three numbers")
    step = numbers[1] if "range" in find else numbers[2]
    demand(step >= 1, where, "the step between keys is at least 1")


def check_arguments(where, arguments, key_count):
    demand(arguments, where, "arguments are empty")
    for argument in arguments:
        check_fields(where, argument, ARGUMENT_FIELDS)
        name, kind = argument["name"], argument["type"]
        inner = f"{where}: argument {name}"
        demand(kind in ARGUMENT_TYPES, inner, f"unknown type '{kind}'")
        demand((kind in ("oneof", "block")) == ("arguments" in argument), inner,
               "oneof and block, and only they, have arguments")
        demand(kind != "pure-token" or "token" in argument, inner, "a pure-token needs a token")
        demand(("key_spec" in argument) in ([True] if kind == "key" else [kind == "pattern", False]),
               inner, "keys have a key_spec, patterns may, and no others")
        demand(argument.get("key_spec", 0) in range(max(key_count, 1)), inner,
               "there is no such key specification")
        for field in ("since", "deprecated_since"):
            demand(field not in argument or VERSION.fullmatch(argument[field]), inner,
                   f"{field} is no version")
        if "arguments" in argument:
            check_arguments(inner, argument["arguments"], key_count)


def check_command(where, command):
    check_fields(where, command, COMMAND_FIELDS)
    flags, keys = command["flags"], command.get("keys", [])
    check_words(where, flags, FLAGS, "flags")
    check_words(where, command["acl"], CATEGORIES, "acl")
    check_words(where, command.get("reply", []), REPLIES, "reply")
    check_words(where, command.get("doc_flags", []), DOC_FLAGS, "doc_flags")
    demand(command["name"] == command["name"].upper(), where, "names are in upper case")
    demand(command["mode"] in MODES, where, "unknown mode")
    demand(command["group"] in GROUPS, where, "unknown group")
    demand(VERSION.fullmatch(command["since"]), where, "since is no version")
    demand(command["arity"] != 0, where, "arity counts the command's name")
    # LASTSAVE is of the category without the flag.
    derived = set(DERIVED) - ({"admin"} if "admin" not in command["flags"] else set())
    demand(not set(command["acl"]) & derived, where, f"{DERIVED} follow from the flags")
    demand(not {"write", "readonly"} <= set(flags), where, "write and readonly exclude each other")
    demand("denyoom" not in flags or "write" in flags, where, "denyoom without write")
    demand((command["mode"] == "keys") == bool(keys), where, "mode keys and field keys differ")
    demand("alone" not in command or command["mode"] == "keys" and not command.get("batch"), where,
           "only a command of mode keys, outside of batches, may sometimes be alone")
    demand(not command.get("batch") or command["mode"] in ("keys", "free"), where,
           "a command of this mode cannot be part of a batch")
    demand("member" not in command or (command.get("batch") and command["member"] > 0), where,
           "a member is looked for ahead in a batch")
    for key in keys:
        check_key(where, key)
        # The engine finds the only key at a fixed place without asking.
        demand("function" not in key or "keyword" in key["begin"] or len(keys) > 1, where,
               "a function beside a place is for one of several specifications")
    if "arguments" in command:
        check_arguments(where, command["arguments"], len(keys))


def identifier(group):
    """A group's name as part of C names and file names."""
    return group.replace("-", "_")


def full_name(command):
    name = command["name"].lower()
    return f"{command['container'].lower()}|{name}" if "container" in command else name


def load(path):
    where = path.relative_to(ROOT)
    try:
        command = json.loads(path.read_text(encoding="ascii"))
    except (ValueError, OSError) as error:
        raise Mistake(f"{where}: {error}") from error
    check_command(where, command)
    command["full_name"] = full_name(command)
    file_name = command["full_name"].replace("|", "-") + ".json"
    demand(path.name == file_name, where, f"the file should be called {file_name}")
    command["subs"] = []
    return command


def load_all():
    """All top-level commands sorted by name, each with its sorted "subs"; ids are given out."""
    commands = {}
    for path in sorted(SOURCE.glob("*.json")):
        command = load(path)
        commands[command["full_name"]] = command
    for command in commands.values():
        if "container" in command:
            container = command["container"].lower()
            demand(container in commands, command["full_name"], "the container is not described")
            commands[container]["subs"].append(command)
    top = sorted((c for c in commands.values() if "container" not in c),
                 key=lambda c: c["full_name"])
    following = 0
    for command in top:
        command["subs"].sort(key=lambda c: c["full_name"])
        demand(not command["subs"] or command["mode"] == "free", command["full_name"],
               "a container has mode free")
        for each in [command] + command["subs"]:
            each["id"] = following
            following += 1
    return top


def flatten(top):
    return [each for command in top for each in [command] + command["subs"]]


# --- what follows from the fields ---

def function_of(command):
    """C function, or None for a container that does nothing without a subcommand."""
    if "function" in command:
        return command["function"]
    if command["subs"] and command["full_name"] != "command":
        return None
    return "kv_cmd_" + re.sub(r"[|-]", "_", command["full_name"])


def flags_of(command):
    flags = [f"KV_CMD_{f.upper()}" for f in command["flags"]]
    plain = all("index" in k["begin"] and "range" in k["find"] for k in command.get("keys", []))
    incomplete = any("incomplete" in k["flags"] for k in command.get("keys", []))
    if not plain or incomplete:
        flags.append("KV_CMD_MOVABLEKEYS")
    if command.get("batch"):
        flags.append("KV_CMD_BATCH")
    if "alone" in command:
        flags.append("KV_CMD_MAY_ALONE")
    if command.get("script"):
        flags.append("KV_CMD_SCRIPT")
    return flags


def categories_of(command):
    flags, names = set(command["flags"]), set(command["acl"])
    names |= {"write", "pubsub", "blocking"} & flags
    # A script that may only read is no reader of keys to permissions: what it calls is.
    names |= {"read"} if "readonly" in flags and "scripting" not in names else set()
    names |= {"admin", "dangerous"} if "admin" in flags else set()
    names.add("fast" if "fast" in flags else "slow")
    return sum(1 << CATEGORIES.index(name) for name in names)


def legacy_range(command):
    """The first, last, step of COMMAND INFO: specifications by index that follow each other."""
    first, last, step = 0, 0, 0
    for key in command.get("keys", []):
        if "index" not in key["begin"] or "range" not in key["find"]:
            continue
        begin = key["begin"]["index"]
        end, this_step, limit = key["find"]["range"]
        if limit > 1 or (first and (begin != last + 1 or this_step != step)):
            continue
        first, last, step = first or begin, begin + end if end >= 0 else end, this_step
    return first, last, step


# --- C text ---

def text(value):
    return "NULL" if value is None else json.dumps(value)


def header(comment):
    return f"/* Generated by tools/gen_commands.py from commands/; do not edit.\n *\n{comment} */\n"


def key_functions(commands):
    """The C functions that find keys."""
    keys = [key for command in commands for key in command.get("keys", [])]
    return sorted({key.get("function") or key["find"].get("unknown") for key in keys} - {None, ""})


def functions_h(commands):
    names = sorted({function_of(c) for c in commands} - {None})
    lines = [header(" * The function of every command. Each reads call->argv and writes exactly one"
                    " reply to call->out;\n * engine/call.h says what holds when it runs."),
             "#ifndef KV_CMD_FUNCTIONS_H\n#define KV_CMD_FUNCTIONS_H\n\n#include <stdbool.h>\n\n"
             "struct kv_call;\nstruct kv_slice;\n\n"]
    lines += [f"void {name}(struct kv_call *call);\n" for name in names]
    lines.append("\n/* What the words of a line decide: kv_cmd_alone_fn, kv_cmd_key_fn. */\n")
    lines += [f"bool {name}(const struct kv_slice *argv, int argc);\n"
              for name in sorted({c["alone"] for c in commands if "alone" in c})]
    lines += [f"int {name}(const struct kv_slice *argv, int argc);\n"
              for name in key_functions(commands)]
    return "".join(lines) + "\n#endif\n"


def key_text(key):
    begin, (kind, numbers) = key["begin"], next(iter(key["find"].items()))
    flags = " | ".join(f"KV_KEY_{f.upper()}" for f in key["flags"])
    if "unknown" in begin:
        start = f"UNKNOWN({numbers or 'NULL'})"
    elif "index" in begin:
        start = f"INDEX({begin['index']})"
    else:
        start = f"KEYWORD({text(begin['keyword'].upper())}, {begin['from']})"
    find = "" if "unknown" in begin else f", {kind.upper()}({', '.join(map(str, numbers))})"
    notes = f", NOTES({text(key['notes'])})" if "notes" in key else ""
    notes += f", FOUND_BY({key['function']})" if "function" in key else ""
    return f"{{KEY_FLAGS({flags}), {start}{find}{notes}}}"


class Shared:
    """Constant arrays that several commands use: equal content, one array."""

    def __init__(self, prefix, kind):
        self.prefix, self.kind, self.names = prefix, kind, {}

    def name(self, items):
        return self.names.setdefault(tuple(items), f"{self.prefix}_{len(self.names) + 1}")

    def definitions(self):
        return "".join(f"static const {self.kind} {name}[] = {{{', '.join(items)}}};\n"
                       for items, name in self.names.items())


class Table:
    """Writer of table.c."""

    def __init__(self, top, docs_places):
        self.top, self.docs_places = top, docs_places
        self.keys = Shared("keys", "struct kv_keyspec")
        self.tips = Shared("tips", "char *const")

    def command_text(self, command, parent_index):
        fields = [f"COMMAND({text(command['name'].lower())}, {text(command['full_name'])}, "
                  f"{function_of(command) or 'NULL'}, {command['arity']}, {command['id']}, "
                  f"{' | '.join(flags_of(command)) or '0'}, KV_MODE_{command['mode'].upper()}, "
                  f"{categories_of(command):#x})"]
        if command.get("keys"):
            name = self.keys.name([key_text(k) for k in command["keys"]])
            fields.append(f"KEYS({', '.join(map(str, (name, *legacy_range(command))))})")
        if "alone" in command:
            fields.append(f"ALONE({command['alone']})")
        if "member" in command:
            fields.append(f"MEMBER({command['member']})")
        if command["subs"]:
            fields.append(f"SUBS(subs_of_{command['name'].lower()})")
        if parent_index is not None:
            fields.append(f"PARENT({parent_index})")
        if command.get("tips"):
            name = self.tips.name([text(t) for t in command["tips"]] + ["NULL"])
            fields.append(f"TIPS({name})")
        group, index = self.docs_places[command["full_name"]]
        fields.append(f"DOCS({identifier(group)}, {index})")
        return "{" + ", ".join(fields) + "},\n"

    def write(self):
        subs, commands = [], []
        for index, command in enumerate(self.top):
            if command["subs"]:
                rows = "".join(self.command_text(s, index) for s in command["subs"])
                subs.append(f"static const struct kv_command subs_of_{command['name'].lower()}[] = "
                            f"{{\n{rows}}};\n\n")
            commands.append(self.command_text(command, None))
        categories = "".join(f'"{c}",' for c in CATEGORIES)
        count, ids = len(self.top), len(flatten(self.top))
        return (header(TABLE_COMMENT) + '\n#include "cmd/table.h"\n\n#include "cmd/docs_table.h"\n'
                '#include "cmd/functions.h"\n#include "cmd/helper.h"\n#include "script/function.h"\n\n'
                "const char *const kv_command_acl_categories[KV_COMMAND_ACL_CATEGORY_COUNT] = "
                f"{{{categories}}};\n\n"
                f"{TABLE_MACROS}\n{self.keys.definitions()}\n{self.tips.definitions()}\n"
                f"/* Subcommands point back at their container. */\n"
                f"static const struct kv_command commands[{count}];\n\n{''.join(subs)}"
                f"static const struct kv_command commands[{count}] = {{\n{''.join(commands)}}};\n\n"
                "const struct kv_command_table kv_command_table = {.commands = commands, "
                f".command_count = {count}, .id_count = {ids}, "
                ".category_count = KV_COMMAND_ACL_CATEGORY_COUNT, "
                ".categories = kv_command_acl_categories, "
                ".line_key_flags = kv_cmd_line_key_flags, .client_line = kv_cmd_client_line, "
                ".libraries = &kv_function_library_ops};\n")


TABLE_COMMENT = """ * What the engine has to know of every command: flags, mode, keys, function. Top-level commands and
 * the subcommands of each container are sorted by name; ids count both, in this order. Commands with
 * equal key specifications or tips share one array. All of it is constant and never written.
"""
TABLE_MACROS = """
/* Parts of an initialiser, so that a command takes a few lines. */
#define KEY_FLAGS(f) .flags = (f)
#define INDEX(i) .begin = KV_BEGIN_INDEX, .begin_index = (i)
#define KEYWORD(word, from) .begin = KV_BEGIN_KEYWORD, .begin_index = (from), .begin_keyword = (word)
#define UNKNOWN(fn) .begin = KV_BEGIN_UNKNOWN, .find = KV_FIND_UNKNOWN, .find_key = (fn)
#define RANGE(last, step, limit) .find = KV_FIND_RANGE, .a = (last), .b = (step), .c = (limit)
#define KEYNUM(number, first, step) .find = KV_FIND_KEYNUM, .a = (number), .b = (first), .c = (step)
#define NOTES(text) .notes = (text)
#define FOUND_BY(fn) .find_key = (fn)
#define COMMAND(n, full, f, args, number, bits, needs, acl) \\
    .name = (n), .full_name = (full), .fn = (f), .arity = (args), .id = (number), .flags = (bits), \\
    .mode = (needs), .acl_categories = (acl)
#define KEYS(array, first, last, step) \\
    .keyspecs = (array), .keyspec_count = KV_ARRAY_LEN(array), .first_key = (first), \\
    .last_key = (last), .key_step = (step)
#define ALONE(fn) .alone = (fn)
#define MEMBER(argument) .member_arg = (argument)
#define SUBS(array) .subs = (array), .sub_count = KV_ARRAY_LEN(array)
#define PARENT(index) .parent = &commands[index]
#define TIPS(array) .tips = (array)
#define DOCS(group, index) .docs = &kv_command_docs_##group[index]
"""
DOCS_COMMENT = """ * What COMMAND DOCS prints of the commands of group %s: one element per command in order of their
 * names, and before it the arguments, inner ones first.
"""


class Docs:
    """Writer of docs_<group>.c."""

    def __init__(self, group, commands):
        self.group, self.commands, self.arrays = group, commands, []

    def arguments_name(self, base, arguments):
        rows = []
        for position, argument in enumerate(arguments, 1):
            fields = [f".name = {text(argument['name'])}",
                      f".type = KV_ARG_{argument['type'].upper().replace('-', '_')}"]
            for name in ("token", "display", "since", "deprecated_since"):
                if name in argument:
                    fields.append(f".{name} = {text(argument[name])}")
            fields.append(f".key_spec = {argument.get('key_spec', -1)}")
            flags = [f for f in ("optional", "multiple", "multiple_token") if argument.get(f)]
            if flags:
                fields.append(".flags = " + " | ".join(f"KV_ARG_{f.upper()}" for f in flags))
            if "arguments" in argument:
                inner = self.arguments_name(f"{base}_{position}", argument["arguments"])
                fields += [f".args = {inner}", f".arg_count = {len(argument['arguments'])}"]
            rows.append("{" + ", ".join(fields) + "},\n")
        self.arrays.append(f"static const struct kv_command_arg {base}[] = {{\n{''.join(rows)}}};\n")
        return base

    def docs_text(self, command):
        fields = [f".{name} = {text(command[name])}"
                  for name in ("summary", "since", "group", "complexity", "deprecated_since",
                               "replaced_by") if name in command]
        flags = set(command.get("doc_flags", []))
        flags |= {"deprecated"} if "deprecated_since" in command else set()
        if flags:
            fields.append(".flags = " + " | ".join(f"KV_DOC_{f.upper()}" for f in sorted(flags)))
        if "arguments" in command:
            base = "args_" + re.sub(r"[|-]", "_", command["full_name"])
            fields += [f".args = {self.arguments_name(base, command['arguments'])}",
                       f".arg_count = {len(command['arguments'])}"]
        return "{" + ", ".join(fields) + "},\n"

    def write(self):
        rows = "".join(self.docs_text(c) for c in self.commands)
        return (header(DOCS_COMMENT % self.group) + '\n#include "cmd/docs_table.h"\n\n'
                + "\n".join(self.arrays)
                + f"\nconst struct kv_command_docs kv_command_docs_{identifier(self.group)}[] = {{\n{rows}}};\n")


def docs_table_h(groups):
    lines = [header(" * The documentation of each group of commands; only table.c refers to it."),
             "#ifndef KV_CMD_DOCS_TABLE_H\n#define KV_CMD_DOCS_TABLE_H\n\n"
             '#include "cmd/docs.h"\n\n']
    lines += [f"extern const struct kv_command_docs kv_command_docs_{identifier(g)}[];\n"
              for g in groups]
    return "".join(lines) + "\n#endif\n"


def generate():
    """Every generated file: name in src/cmd to text, before formatting."""
    top = load_all()
    commands = flatten(top)
    demand({c["group"] for c in commands} == set(GROUPS), "commands", "a group has no command")
    groups = {g: sorted((c for c in commands if c["group"] == g), key=lambda c: c["full_name"])
              for g in GROUPS}
    places = {c["full_name"]: (g, i) for g in GROUPS for i, c in enumerate(groups[g])}
    files = {"functions.h": functions_h(commands), "docs_table.h": docs_table_h(GROUPS),
             "table.c": Table(top, places).write()}
    files.update({f"docs_{identifier(g)}.c": Docs(g, groups[g]).write() for g in GROUPS})
    return {name: formatted(TARGET / name, content) for name, content in files.items()}


def formatted(path, content):
    command = ["clang-format", "--style=file", f"--assume-filename={path}"]
    return subprocess.run(command, input=content, capture_output=True, text=True, check=True,
                          cwd=ROOT).stdout


def main():
    parser = argparse.ArgumentParser(description="turn commands/*.json into C in src/cmd")
    parser.add_argument("--check", action="store_true",
                        help="write nothing, exit 1 when the generated files differ")
    options = parser.parse_args()
    try:
        files = generate()
    except Mistake as mistake:
        sys.exit(f"gen_commands: {mistake}")
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"gen_commands: clang-format: {error}")
    stale = [name for name, content in files.items()
             if not (TARGET / name).exists() or (TARGET / name).read_text() != content]
    stale_extra = [p.name for p in TARGET.glob("docs_*.c") if p.name not in files]
    if options.check:
        for name in stale + stale_extra:
            print(f"src/cmd/{name} differs from commands/: run tools/gen_commands.py")
        return 1 if stale or stale_extra else 0
    for name in stale:
        (TARGET / name).write_text(files[name])
    for name in stale_extra:
        (TARGET / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
