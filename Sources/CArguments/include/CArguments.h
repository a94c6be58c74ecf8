// The number of the program's arguments, its name included.
int certprov_argument_count(void);
// An argument; NULL for one that there is not.
const char *certprov_argument(int index);
