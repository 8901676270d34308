/* Pieces and frames whose failure may be reported again; quarantine.h says why. Runs on the group's worker. */
#include "engine/move/quarantine.h"
#include "engine/move/frames.h"
#include "engine/move/piece.h"

void wf_quarantine_piece(struct wf_group *group, struct wf_piece *piece)
{
	piece->seat = NULL;
	piece->next = group->quarantine[0].piece;
	group->quarantine[0].piece = piece;
}

void wf_quarantine_frame(struct wf_group *group, struct wf_tx_frame *frame)
{
	struct wf_quarantine *recent = &group->quarantine[0];

	if (recent->tx_count >= group->tx_count / 4) { /* others need them */
		wf_group_give_tx(group, frame);
		return;
	}
	frame->seat = NULL;
	frame->next = recent->tx;
	recent->tx = frame;
	recent->tx_count++;
}

void wf_quarantine_age(struct wf_group *group)
{
	struct wf_quarantine *old = &group->quarantine[1];
	struct wf_tx_frame *frame;
	struct wf_piece *piece;

	while ((piece = old->piece)) {
		old->piece = piece->next;
		wf_piece_give(group, piece);
	}
	while ((frame = old->tx)) {
		old->tx = frame->next;
		wf_group_give_tx(group, frame);
	}
	*old = group->quarantine[0];
	group->quarantine[0] = (struct wf_quarantine){ 0 };
}
