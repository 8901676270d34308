/*
 * A card's (GPU's) memory through NVIDIA's driver, as an application has it, and what the driver says of its cards. The driver is loaded
 * by name when it is asked for: nothing of CUDA is needed to build or to run without a card. For the benchmark and the doctor; one
 * thread's. The driver starts with the first card that is asked for, which may take a second.
 */
#ifndef WEFT_TOOLS_CARD_H
#define WEFT_TOOLS_CARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cmd_card;

/* The card of that number in this process. 0, or a negative errno with a sentence in why that says what to do. */
int cmd_card_open(uint32_t number, struct cmd_card **ret_card, char *why, size_t room);
void cmd_card_close(struct cmd_card *card); /* and frees its memory; NULL is fine */
/* Once per card. -ENOMEM with a sentence that says how much is free. */
int cmd_card_alloc(struct cmd_card *card, uint64_t bytes, void **ret_memory, char *why, size_t room);
/* From and to memory of the CPU; they have happened when the call returns. 0, or -EIO with a sentence. */
int cmd_card_put(struct cmd_card *card, void *to, const void *from, uint64_t bytes, char *why, size_t room);
int cmd_card_get(struct cmd_card *card, void *to, const void *from, uint64_t bytes, char *why, size_t room);

/* What decides how a card's memory travels. */
struct cmd_card_facts {
	char name[64], pci[16];
	bool direct;          /* NICs may be let into its memory */
	bool dmabuf;          /* the driver gives a descriptor for that */
	char not_local[96];   /* why another process of this host cannot open its memory; "": it can */
	char not_usable[160]; /* why it cannot be used at all; "": it can */
};
/* How many cards there are, at most; the first of them are described. 0, and why, where there is none. */
uint32_t cmd_card_list(struct cmd_card_facts *facts, uint32_t most, char *why, size_t room);

#endif
