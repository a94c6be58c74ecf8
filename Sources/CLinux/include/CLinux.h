// Functions of the C library that Swift cannot call. The types are those of the language alone: a header of the C library
// that is read here with other macros than Swift's Glibc module has would give the program two definitions of one type.

// prctl(2) takes a variable number of arguments, which Swift cannot call.
int certprov_set_dumpable(int dumpable);

// Swift's Glibc module has neither pipe2(2) nor eventfd(2), and fcntl(2) takes a variable number of arguments.
int certprov_pipe(int descriptors[2]);
int certprov_event(void);
int certprov_set_nonblocking(int descriptor);
// A copy of a descriptor above those that a new program gets. Closes the original.
int certprov_move_up(int descriptor);
// A descriptor that becomes readable when the process ends.
int certprov_process(int pid);
// Has a program that is started not get the descriptors from this one on. `actions` is a posix_spawn_file_actions_t.
int certprov_close_from(void *actions, int lowest);
// Starts a program that the kernel kills when the calling thread ends, also by SIGKILL of this process: in a session of its own, with
// these descriptors as 0 to 2 and no others. They must be above 2. Returns 0 or an error of errno(3).
int certprov_spawn_bound(const char *program, char *const arguments[], char *const variables[], const int streams[3],
    int *process);
// A descriptor, the lowest that is free, that can be neither read nor written. Swift has no O_PATH.
int certprov_take_descriptor(void);
// Writes to a pipe without the SIGPIPE that the process would get when its reader has gone.
long certprov_write(int descriptor, const void *bytes, long count);
// memmem(3): the first place of a needle, or NULL.
const void *certprov_find(const void *needle, long needle_count, const void *bytes, long count);

// The access control list of a file (acl(5)), as the kernel has it. Swift's Glibc module has no xattr(7).
long certprov_access_list(int descriptor, void *bytes, long count);
int certprov_set_access_list(int descriptor, const void *bytes, long count);

// Takes a connection: a descriptor that does not block and that no program inherits. Swift has no accept4(2).
int certprov_accept(int listener);
// The process, the user and the group at the other end of a Unix socket. Swift has no `struct ucred`.
int certprov_peer(int descriptor, int *pid, unsigned *user, unsigned *group);

// glibc has no functions for keyrings(7). Each returns -1 and sets errno where it fails.
long certprov_keyring_id(int special);
int certprov_session_keyring(void);
int certprov_user_session_keyring(void);
long certprov_key_add(const char *name, const void *bytes, long count);
long certprov_key_link_to_session(long key);
long certprov_key_find(const char *name);
long certprov_key_read(long key, void *bytes, long count);
long certprov_key_set_timeout(long key, unsigned seconds);
long certprov_key_describe(long key, char *text, long count);
long certprov_key_invalidate(long key);
