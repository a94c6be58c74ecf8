#ifndef FAULTY_MODULE_STATE_H
#define FAULTY_MODULE_STATE_H

#include <openssl/evp.h>
#include <pthread.h>

#include "include/control.h"

enum { TOKENS = 4, SLOTS = 2, SESSIONS = 64, FUNCTIONS = 68, TRIES = 3 };

/// A `CKA_ID`.
struct id {
    CK_BYTE bytes[32];
    CK_ULONG count;
};

struct object {
    CK_OBJECT_CLASS class;
    struct id id;
    CK_BBOOL asks_each_time;
    /// Destroyed. Its handle is the next new object's.
    int is_gone;
    /// Added since the token was read.
    int is_new;
    EVP_PKEY *key;
    unsigned char *value, *subject, *modulus;
    unsigned long value_count, subject_count, modulus_count;
};

struct token {
    char label[33], serial[17], pin[33];
    CK_FLAGS reported, concealed;
    CK_ULONG shortest_pin, longest_pin;
    CK_ULONG reported_sessions, available_sessions;
    CK_MECHANISM_TYPE mechanisms[16];
    CK_MECHANISM_INFO mechanism_infos[16];
    unsigned mechanism_count;
    int hides_certificates, shows_keys, repeats_objects;
    /// Its private keys are public objects, and whether they sign only after a login all the same.
    int has_public_keys, demands_login;
    /// What it says to each signature; `CKR_OK` where it signs.
    CK_RV refusal;
    /// Takes this hash for OAEP, whatever is asked for.
    CK_MECHANISM_TYPE only_hash;
    unsigned tries;
    int is_logged_in;
    struct object *objects;
    unsigned long object_count, gone_count;
};

struct session {
    int is_open, is_used, writes;
    unsigned slot;
    /// Tells it from a later session with the same handle.
    unsigned long opening;
    /// The objects that a search has found, and how many of them were handed out.
    CK_OBJECT_HANDLE *found;
    unsigned long found_count, found_next;
    const struct object *key;
    CK_MECHANISM_TYPE mechanism;
    CK_MECHANISM_TYPE hash;
    int is_confirmed;
};

struct state {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct token tokens[TOKENS];
    int is_initialized;
    int slots[SLOTS];
    /// How many numbers lists have more, each time that they are asked for.
    CK_ULONG growth;
    CK_SLOT_ID first_slot;
    struct session sessions[SESSIONS];
    unsigned long openings;
    unsigned pins, confirmations, most_sessions, shared_uses;
    int cannot_lock;
    /// The mutex that the library has got of the program, where it has got any.
    CK_LOCKMUTEX lock_mutex;
    CK_UNLOCKMUTEX unlock_mutex;
    void *mutex;
    int uses_mutex;
    int are_readers_fixed;
    int reads_once;
    /// What fields of a fixed length end with; a blank where it is not set.
    int pads_with_nuls;
    /// Changed without the lock: the calls that are in the library, and how often one came while another one was there.
    unsigned inside, overlaps;
    struct {
        CK_ATTRIBUTE_TYPE type;
        CK_ULONG asked, read;
    } distortion;
};

/// The one state of this copy of the library. A test that wants another one loads another copy.
extern struct state state;

void come_in(void);
void go_out(void);
/// Counts a call and lets it fail, hang or end the process as the test has said. Called with the lock; a held call gives
/// it up meanwhile.
CK_RV enter(const char *function);
/// Ends what `break_down` has begun. Called with the lock.
void mend(void);
/// Counts a PIN that is sent, also in the file `FAULTY_MODULE_PINS`: for several processes, and for one that ends.
void count_pin(void);
/// Takes its time and leaves a mark in the file `FAULTY_MODULE_FINALIZED`, where that is set.
void end_slowly(void);
/// The result of a call: its own, or the one that the test wants to see.
CK_RV leave(const char *function, CK_RV result);

/// The token in a slot; NULL where there is none.
struct token *token_in(CK_SLOT_ID slot, CK_RV *result);
/// An open session that no other call uses; NULL otherwise. Ended with `give_back`.
struct session *take_session(CK_SESSION_HANDLE handle, CK_RV *result);
void give_back(struct session *session);
struct token *token_of(const struct session *session);
void close_session(struct session *session);
void close_sessions(unsigned slot);
unsigned open_sessions(void);
unsigned sessions_in(CK_SLOT_ID id);

/// Puts a certificate on a token and returns its handle; 0 where it is none.
CK_OBJECT_HANDLE append_certificate(struct token *token, struct id id, const void *der, unsigned long count);
int is_visible(const struct token *token, const struct object *object);

#endif
