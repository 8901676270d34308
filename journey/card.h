/* Memory on an NVIDIA card, through the driver's own library, which is looked for at run time: nothing of CUDA is needed to build. */
#ifndef JOURNEY_CARD_H
#define JOURNEY_CARD_H

#include <stddef.h>

/* Uses the first card. Ends the program with a sentence where there is none. After the fork: a card's context does not survive one. */
void card_open(void);
/* Memory on the card. Its address is for NICs and for the two functions below: this process cannot read or write there. */
void *card_take(size_t bytes);
void card_put(void *card, const void *host, size_t bytes);
void card_get(void *host, const void *card, size_t bytes);

#endif
