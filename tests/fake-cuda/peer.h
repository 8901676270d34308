/* What a test asks of the fake cards in its peer process: COMMAND_CARD, and COMMAND_REGION with a card's memory. */
#ifndef FAKE_CUDA_PEER_H
#define FAKE_CUDA_PEER_H

#include "support/command.h"

enum { HOLD, SLOW, LOSE, LEFT, WRONG, WAITING }; /* card_control() */
#endif
