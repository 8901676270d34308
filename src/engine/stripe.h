/* What the files of the data path (stripe.c, part.c, handover.c) and the group's turn share. On a group's worker. */
#ifndef WF_ENGINE_STRIPE_H
#define WF_ENGINE_STRIPE_H

#include "engine/transfer.h"

#define WF_PART_QUANTUM (1u << 20) /* bytes of a transfer before the turn of the peer's next one */

/* stripe.c */
/* How far rails are filled in a turn: the same for all of them. */
struct wf_level {
	const struct wf_lane *lane; /* of whose operations; NULL: no limit */
	int ops;
};
struct wf_level wf_stripe_level(const struct wf_group *group); /* something must be runnable */
/* Gives a rail its turn, to post up to the level: how many it posted. */
int wf_stripe_seat(struct wf_group *group, struct wf_seat *seat, const struct wf_level *level);

/* part.c */
void wf_part_start(struct wf_group *group, struct wf_transfer *transfer);
void wf_part_stop(struct wf_group *group, struct wf_transfer *transfer, weft_transfer id);
void wf_part_check_stopping(struct wf_group *group, uint64_t now_ns);
void wf_part_maybe_done(struct wf_group *group, struct wf_part *part);
bool wf_part_exhausted(const struct wf_part *part); /* nothing left to post, unless a piece comes back */
void wf_part_fail(struct wf_group *group, struct wf_part *part, struct wf_seat *seat, int status);

void wf_piece_landed(struct wf_group *group, struct wf_seat *seat,
		     struct wf_piece *piece); /* seat->ops and on_nic are the caller's */
void wf_piece_failed(struct wf_group *group, struct wf_piece *piece, int status);
void wf_piece_taken_back(struct wf_group *group, struct wf_piece *piece); /* its rail was reset */
void wf_piece_again(struct wf_piece *piece); /* back to its part, for whichever rail comes first */
bool wf_piece_tried_enough(struct wf_piece *piece);

/* handover.c */
bool wf_spare_take(struct wf_part *part); /* false: there is none */
void wf_part_hand_over(struct wf_group *group, struct wf_part *part);
void wf_lane_hand_over(struct wf_lane *lane); /* when none of its paths is up and another group's are */
#endif
