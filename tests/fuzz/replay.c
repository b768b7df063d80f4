/* Runs a fuzz target over files without libFuzzer: the corpus and every past crash are replayed by
 * `make test` with plain gcc, so that clang is needed only to search for new inputs.
 *
 *     replay_<target> FILE...
 *
 * An input is copied to a block of exactly its size, so that AddressSanitizer sees a read behind
 * its end. A fault ends the process; the name of the input was printed before, with --verbose. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        perror(path);
        return 1;
    }
    long size = ftell(file);
    rewind(file);
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    if (size < 0 || data == NULL || fread(data, 1, (size_t)size, file) != (size_t)size) {
        perror(path);
        fclose(file);
        free(data);
        return 1;
    }
    fclose(file);
    LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    return 0;
}

int main(int argc, char **argv)
{
    int failed = 0, verbose = 0;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--verbose") == 0) {
            verbose = 1;
            continue;
        }
        if (verbose) {
            printf("%s\n", argv[i]);
            fflush(stdout);
        }
        failed += replay(argv[i]);
    }
    printf("%d inputs\n", argc - 1 - verbose);
    return failed != 0;
}
