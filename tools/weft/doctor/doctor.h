/*
 * weft doctor, shared by its files. A check looks at files of a host (under a root a test can replace), says
 * what it saw and, when that is not right, how to mend it. doctor.c runs the table, rdma.c,
 * gpu.c, cards.c and host.c hold the checks, files.c reads, ask.c asks the cards' driver and libfabric. One thread, nothing outlives the
 * command.
 */
#ifndef WEFT_TOOLS_DOCTOR_H
#define WEFT_TOOLS_DOCTOR_H

#include "../common/card.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum doctor_result { DOCTOR_OK, DOCTOR_NOTE, DOCTOR_WARN, DOCTOR_BLOCKS, DOCTOR_NOT_APPLICABLE, DOCTOR_RESULTS };
enum doctor_require { DOCTOR_REQUIRE_NOTHING, DOCTOR_REQUIRE_EFA, DOCTOR_REQUIRE_VERBS };

enum { DOCTOR_CARDS = 16 };
struct doctor_cards {
	uint32_t total, count; /* count: those that follow */
	struct cmd_card_facts card[DOCTOR_CARDS];
	char why[400]; /* there is none */
};

/* All a check may look at. */
struct doctor {
	const char *root; /* "": the host itself */
	enum doctor_require require;
	const char *libfabric;            /* the version in use, as "1.17"; NULL: not known */
	const char *library_path;         /* LD_LIBRARY_PATH; NULL: none */
	const char *topology;             /* a saved topology that weft is to use; NULL: none */
	bool fork_safe;                   /* RDMAV_FORK_SAFE, IBV_FORK_SAFE or FI_EFA_FORK_SAFE is set */
	bool huge_pages_safe;             /* RDMAV_HUGEPAGES_SAFE is set */
	bool shared_receives;             /* FI_OFI_RXM_USE_SRX is set */
	const struct doctor_cards *cards; /* what the driver says; NULL: not asked, as of another host */
	const char *
	    hmem; /* libfabric's providers that let NICs into cards, "": none; NULL: not asked, because there is no card */
};

struct doctor_finding {
	enum doctor_result result;
	char seen[512];
	char mend[512]; /* "" when nothing is to be done */
};

struct doctor_check {
	const char *id, *title;
	void (*run)(const struct doctor *doctor, struct doctor_finding *finding);
};

extern const struct doctor_check doctor_rdma_checks[], doctor_gpu_checks[], doctor_card_checks[],
    doctor_host_checks[]; /* end in NULL */

/* mend may be NULL; the rest says what was seen. */
void doctor_say(struct doctor_finding *finding, enum doctor_result result, const char *mend, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* files.c. Paths start with '/' and are taken under the root. */
#define DOCTOR_PATH  512
#define DOCTOR_NAMES 1024
#define DOCTOR_NAME  64
struct doctor_names {
	size_t count;
	char name[DOCTOR_NAMES][DOCTOR_NAME]; /* sorted; more than fit are left out */
};
/* Formats under the root; false when it does not fit. */
bool doctor_path(const struct doctor *doctor, char path[DOCTOR_PATH], const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A file's text without the last newline: its length, or a negative errno. Cut when it does not fit. */
int doctor_read(const struct doctor *doctor, char *text, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
int doctor_read_number(const struct doctor *doctor, long *ret_number, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool doctor_exists(const struct doctor *doctor, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The last part of what a link points to, "" when it is none. */
void doctor_link(const struct doctor *doctor, char name[DOCTOR_NAME], const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Entries of a directory but those that start with a dot; none when it is not there. */
void doctor_list(const struct doctor *doctor, struct doctor_names *names, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The whole of a file, of at most limit bytes, NULL when it cannot be read. The caller frees it. */
unsigned char *doctor_load(const struct doctor *doctor, size_t limit, size_t *ret_bytes, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The value of "key: value" in a file of such lines, "" when it is not there. */
void doctor_field(const struct doctor *doctor, const char *path, const char *key, char *value, size_t bytes);

/* Calls fn for every path in the linker's cache that ends in name, which starts with '/'. */
void doctor_cached(const struct doctor *doctor, const char *name, void (*fn)(void *context, const char *path),
		   void *context);

/* Adds an item to a list for people: "a, b, c and 5 more" needs the count at the end. */
struct doctor_items {
	char text[256];
	size_t count;
};
void doctor_add(struct doctor_items *items, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *doctor_items(struct doctor_items *items);

/* ask.c */
void doctor_ask_cards(struct doctor_cards *ret_cards);
void doctor_ask_hmem(struct doctor_items *ret_providers);

/* 6.1 is 6001; 0 when it is not known. */
unsigned doctor_kernel(const struct doctor *doctor);
bool doctor_has_rdma(const struct doctor *doctor);
bool doctor_has_efa(const struct doctor *doctor);
bool doctor_has_nvidia(const struct doctor *doctor); /* on PCI */

#endif
