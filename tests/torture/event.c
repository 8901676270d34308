/* What comes out of a node's queues, on its thread: ends, arrivals, and the calls it answers. */
#include "torture.h"
#include "message.h"

#include <errno.h>
#include <string.h>

#define BATCH 32
#define TURNS 8 /* of an engine without threads, each time we look */

int app_status(uint64_t id)
{
	return id >> 16 & 3 ? 0 : -200 - (int)((id >> 16) % 50);
}

uint64_t reply_bytes(uint64_t id)
{
	return (id >> 16) * 2654435761u % 9000;
}

static void check_reply(struct node *node, const struct weft_event *event)
{
	struct op *op = &node->op[event->tag % OPS];

	if (op->id != event->tag || (event->status && event->status > -200))
		return; /* op_ended() sees to it */
	if (event->status != app_status(event->tag) || event->bytes != reply_bytes(event->tag) ||
	    !pattern_is(event->data, event->bytes, ~event->tag))
		fail(op, "a reply with status %d and %llu bytes, not %d and %llu, or its bytes are wrong",
		     event->status, (unsigned long long)event->bytes, app_status(event->tag),
		     (unsigned long long)reply_bytes(event->tag));
}

static uint64_t read_message(struct node *node, const struct weft_event *event)
{
	struct message message;
	uint64_t *last;

	if (event->bytes < sizeof(message))
		fail(NULL, "node %u: a message of %llu bytes", node->index, (unsigned long long)event->bytes);
	memcpy(&message, event->data, sizeof(message));
	if (message.id != event->tag || message.bytes != event->bytes || message.from >= world.nodes ||
	    !pattern_is((const uint8_t *)event->data + sizeof(message), event->bytes - sizeof(message), message.id))
		fail(NULL, "node %u: the bytes of message %llx are wrong", node->index, (unsigned long long)event->tag);
	arrived(node, message.id, event->type == WEFT_EVENT_CALL ? "call" : "message");
	last = &node->heard[message.from][message.generation % 256];
	if (message.sequence <= *last)
		fail(NULL, "node %u: message %llu of node %u came after its %llu", node->index,
		     (unsigned long long)message.sequence, message.from, (unsigned long long)*last);
	*last = message.sequence;
	return message.id;
}

static void owe_reply(struct node *node, const struct weft_event *event, uint64_t id, uint64_t now)
{
	uint32_t when = random_below(&node->random, 100);

	/* Now, in a while, or never. */
	if (when < 5 || node->oweds == CALLS)
		return;
	node->owed[node->oweds++] =
	    (struct owed){ event->peer, event->call, id,
			   when < 80 ? now : now + random_below(&node->random, 50) * WEFT_MILLISECOND };
}

void send_replies(struct node *node, uint64_t now)
{
	static _Thread_local uint8_t data[9000];

	for (uint32_t i = 0; i < node->oweds;) {
		struct owed owed = node->owed[i];
		int rc;

		if (now < owed.due_ns) {
			i++;
			continue;
		}
		pattern_fill(data, reply_bytes(owed.id), ~owed.id);
		rc = weft_reply(node->engine, owed.peer, owed.call, app_status(owed.id), data, reply_bytes(owed.id));
		if (rc == -EAGAIN && now < owed.due_ns + WEFT_SECOND) {
			i++;
			continue;
		}
		if (rc && rc != -EAGAIN && rc != -EHOSTDOWN && rc != -ENOENT)
			fail(NULL, "weft_reply said %s", weft_strerror(rc));
		node->owed[i] = node->owed[--node->oweds];
	}
}

/* What the stranger sent as any peer may. */
static bool is_strangers(const struct weft_event *event)
{
	return event->tag == STRANGER_TAG && (event->type == WEFT_EVENT_MESSAGE || event->type == WEFT_EVENT_CALL ||
					      event->type == WEFT_EVENT_NOTIFY);
}

static void take(struct node *node, struct weft_event *event, uint64_t absent_ns)
{
	if (is_strangers(event)) {
		weft_event_release(event);
		return;
	}
	switch (event->type) {
	case WEFT_EVENT_REPLY:
		check_reply(node, event);
		/* fall through */
	case WEFT_EVENT_END:
	case WEFT_EVENT_COUNTED:
		if (event->tag)
			op_ended(node, event, absent_ns);
		break;
	case WEFT_EVENT_MESSAGE:
		read_message(node, event);
		world.tally.messages++;
		break;
	case WEFT_EVENT_CALL:
		owe_reply(node, event, read_message(node, event), now_ns());
		world.tally.calls++;
		break;
	case WEFT_EVENT_NOTIFY:
		if (event->bytes > WEFT_NOTIFY_MAX || !pattern_is(event->data, event->bytes, event->tag))
			fail(NULL, "node %u: the payload of notification %llx is wrong", node->index,
			     (unsigned long long)event->tag);
		arrived(node, event->tag, "notification");
		world.tally.notifies++;
		break;
	case WEFT_EVENT_PEER_DOWN:
		for (uint32_t i = 0; i < world.nodes; i++)
			if (node->link[i].peer == event->peer)
				node->link[i].down = true;
		world.tally.peer_down++;
		break;
	case WEFT_EVENT_RAIL_DOWN:
		world.tally.rail_down++;
		break;
	case WEFT_EVENT_RAIL_UP:
		node_publish_address(node);
		break;
	case WEFT_EVENT_PEER_UP:
		break;
	case WEFT_EVENT_NONE:
		fail(NULL, "node %u: an event of no type", node->index);
	}
	weft_event_release(event);
}

int take_events(struct node *node)
{
	struct weft_event events[BATCH];
	uint64_t before = now_ns();
	int total = 0;

	/* -EBUSY: whoever cancels is in a turn for us. */
	for (int turn = 0; world.manual && turn < TURNS; turn++)
		if ((total = weft_progress(node->engine)) < 0 && total != -EBUSY)
			fail(NULL, "weft_progress said %s", weft_strerror(total));
	total = total > 0;
	for (int q = 0; q < 3; q++) {
		uint64_t now = now_ns();
		int got = weft_queue_poll(node->queue[q], events, BATCH);

		if (got < 0)
			fail(NULL, "weft_queue_poll said %s", weft_strerror(got));
		for (int i = 0; i < got; i++)
			take(node, &events[i], node->empty_ns[q]);
		if (got < BATCH)
			node->empty_ns[q] = now;
		total += got;
	}
	if (!total && before - node->checked_ns > 5 * WEFT_MILLISECOND) {
		node->checked_ns = before;
		check_overdue(node, before);
	}
	return total;
}
