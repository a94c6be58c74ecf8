#ifndef FAULTY_MODULE_CONTROL_H
#define FAULTY_MODULE_CONTROL_H

#include <p11-kit/pkcs11.h>

/// What a test may do to the module, beside what PKCS#11 lets a program do. All functions may be called from any
/// thread. Tokens are 0 to 3, slots 0 and 1.
struct faulty_control {
    void (*set_token)(unsigned token, const char *label, const char *serial, const char *pin);
    /// Flags that `C_GetTokenInfo` reports whatever is true, and those that it conceals.
    void (*set_flags)(unsigned token, CK_FLAGS reported, CK_FLAGS concealed);
    /// What the token says of the lengths of its PINs.
    void (*set_pin_lengths)(unsigned token, CK_ULONG shortest, CK_ULONG longest);
    /// The maximum that is reported, and how many sessions there really are for this program.
    void (*set_sessions)(unsigned token, CK_ULONG reported, CK_ULONG available);
    void (*set_mechanisms)(unsigned token, const CK_MECHANISM_TYPE *mechanisms, unsigned count);
    /// A private key, as PKCS#8. It is visible after login where the token has one.
    int (*add_key)(unsigned token, unsigned id, const void *der, unsigned long count, int asks_each_time);
    int (*add_certificate)(unsigned token, unsigned id, const void *der, unsigned long count);
    /// Adds the last object that a token has once more, under another id: reading keys and certificates takes time.
    void (*add_again)(unsigned token, unsigned id);
    void (*clear)(unsigned token);
    /// A search for objects begins anew where it ends.
    void (*repeat_objects)(unsigned token);
    /// Whether a token shows its certificates, and its private keys, before login.
    void (*set_visibility)(unsigned token, int shows_certificates, int shows_keys);
    /// Makes the private keys of a token public objects (`CKA_PRIVATE` is false), which sign with or only after a login.
    void (*publish_keys)(unsigned token, int demands_login);
    /// Answers each signature so, until that is `CKR_OK`. With `CKR_USER_NOT_LOGGED_IN` forgets the login, as OpenSC does when a
    /// card says 6982.
    void (*refuse_signatures)(unsigned token, CK_RV answer);
    /// Decrypts by OAEP with this hash, whatever is asked for.
    void (*set_only_hash)(unsigned token, CK_MECHANISM_TYPE hash);
    /// A public key on a curve, with the bytes of its `CKA_EC_POINT`.
    void (*add_public_key)(unsigned token, unsigned id, const void *point, unsigned long count);
    /// What `C_GetMechanismInfo` says of a mechanism; otherwise it says nothing, with zeros.
    void (*set_mechanism_info)(unsigned token, CK_MECHANISM_TYPE mechanism, CK_MECHANISM_INFO info);

    /// Shows what is added to a token from now on only after `C_Initialize`, as OpenSC does, which reads a card once.
    void (*read_once)(void);

    /// Puts a token into a slot; -1 takes out what is there. Every change ends all sessions and logins with that slot.
    void (*insert)(unsigned slot, int token);
    /// As another part of the process may.
    void (*log_out)(unsigned token);
    /// Lists of slots and mechanisms are said to be so much longer than they are, and have too little room then.
    void (*grow_lists)(CK_ULONG count);
    /// What `C_GetSlotList` calls the first slot; the second one has the number behind it.
    void (*number_slots)(CK_SLOT_ID first);

    /// Lets calls of a function fail without doing anything: `count` of them, after `skip` others.
    void (*fail)(const char *function, unsigned skip, unsigned count, CK_RV result);
    /// Lets each call of a function fail without doing anything, until `C_Finalize`: what is in the module has broken.
    void (*break_down)(const char *function, CK_RV result);
    /// Does the work, and then reports `result` for the next `count` calls: an answer that got lost.
    void (*lose)(const char *function, unsigned count, CK_RV result);
    /// Lets every call of a function take so long.
    void (*slow_down)(const char *function, unsigned milliseconds);
    /// Lets the next call of a function leave the program's mutex locked, as OpenSC 0.23 does when a card is pulled.
    void (*forget_mutex)(const char *function);
    /// Holds every call of a function until `release`.
    void (*hold)(const char *function);
    /// Lets calls of a function do their work, and holds their answers.
    void (*hold_answer)(const char *function);
    void (*release)(void);
    /// Waits until so many calls are held; false after a minute.
    int (*wait_held)(unsigned count);
    /// What is reported as the length of an attribute, when it is asked for and when it is read.
    void (*distort)(CK_ATTRIBUTE_TYPE type, CK_ULONG asked, CK_ULONG read);

    unsigned (*calls)(const char *function);
    /// How many PINs were sent, right and wrong.
    unsigned (*pins)(void);
    unsigned (*tries_left)(unsigned token);
    /// Context-specific logins that a key demanded and got.
    unsigned (*confirmations)(void);
    unsigned (*most_sessions)(void);
    unsigned (*open_sessions)(void);
    /// Whether it is initialised, or a call is in it.
    unsigned (*is_in_use)(void);
    /// How often a session was used while another call used it.
    unsigned (*shared_uses)(void);
    /// How often a call came while another one was in the library.
    unsigned (*overlaps)(void);
    /// Makes it a library that cannot lock.
    void (*forbid_threads)(void);
    /// Makes its readers ones that nothing can be taken out of, as a software token's are, or ends that.
    void (*fix_readers)(int are_fixed);
    /// Texts of slots, tokens and the library end with NULs instead of blanks.
    void (*pad_with_nuls)(void);
};

/// The module exports this beside `C_GetFunctionList`.
typedef const struct faulty_control *(*faulty_control_function)(void);

#endif
