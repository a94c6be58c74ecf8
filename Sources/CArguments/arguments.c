// Swift's CommandLine reads the arguments from /proc, which a chroot may not have. The C library passes them to constructors.
#include "CArguments.h"

#include <stddef.h>

static int count;
static char **arguments;

__attribute__((constructor)) static void take(int program_count, char **program_arguments)
{
    count = program_count;
    arguments = program_arguments;
}

int certprov_argument_count(void) { return count; }

const char *certprov_argument(int index) { return index >= 0 && index < count ? arguments[index] : NULL; }
