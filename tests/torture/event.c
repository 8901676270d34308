/* Takes what comes out of a node's queues, on its thread: ends, arrivals, and the calls it answers. */
#include "torture.h"
#include "message.h"

#include <errno.h>
#include <string.h>

#define BATCH 32
#define TURNS 8 /* turns for an engine without threads at each look */

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
		return; /* op_ended() handles it */
	if (event->status != app_status(event->tag) || event->bytes != reply_bytes(event->tag) ||
	    pattern_differs(event->data, event->bytes, ~event->tag, 0) != event->bytes)
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
	    pattern_differs((const uint8_t *)event->data + sizeof(message), event->bytes - sizeof(message), message.id,
			    0) != event->bytes - sizeof(message))
		fail(NULL, "node %u: the bytes of message %llx are wrong", node->index, (unsigned long long)event->tag);
	arrived(node, message.id, event->type == WEFT_EVENT_CALL ? "call" : "message");
	last = &node->heard[message.from][message.generation % 256];
	if (!message.sequence)
		return message.id;
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

/* Replies with an op end once each, in time (check_overdue()), and well where nothing is done to the peers. */
static void reply_ended(struct node *node, const struct weft_event *event)
{
	if (!node->replies--)
		fail(NULL, "node %u: a reply ended twice", node->index);
	if (event->status && !(world.faults & ~HARMLESS) && !machine_stood_still(now_ns()))
		fail(NULL, "node %u: a reply ended with %s", node->index, weft_strerror(event->status));
}

void send_replies(struct node *node, uint64_t now)
{
	static _Thread_local uint8_t data[9000];
	struct weft_op op = {
		.size = sizeof(op), .queue = node->queue[0], .tag = REPLY_TAG, .timeout_ns = 3 * WEFT_SECOND
	};

	for (uint32_t i = 0; i < node->oweds;) {
		struct owed owed = node->owed[i];
		bool ends = random_chance(&node->random, 30);
		int rc;

		if (now < owed.due_ns) {
			i++;
			continue;
		}
		pattern_fill(data, reply_bytes(owed.id), ~owed.id, 0);
		rc = weft_reply(node->engine, owed.peer, owed.call, app_status(owed.id), data, reply_bytes(owed.id),
				ends ? &op : NULL, NULL);
		if (!rc && ends) {
			node->replies++;
			node->replies_by_ns = now_ns() + op.timeout_ns;
		}
		if (rc == -EAGAIN && now < owed.due_ns + WEFT_SECOND) {
			i++;
			continue;
		}
		if (rc && rc != -EAGAIN && rc != -EHOSTDOWN && rc != -ENOENT)
			fail(NULL, "weft_reply said %s", weft_strerror(rc));
		node->owed[i] = node->owed[--node->oweds];
	}
}

/* Messages that the stranger sent as any peer may. */
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
		if (event->tag == REPLY_TAG)
			reply_ended(node, event);
		else if (event->tag)
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
		if (event->bytes > WEFT_NOTIFY_MAX ||
		    pattern_differs(event->data, event->bytes, event->tag, 0) != event->bytes)
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
	default:
		fail(NULL, "node %u: an event of no type", node->index);
	}
	weft_event_release(event);
}

/* Ends that are in no queue. */
static int take_kept(struct node *node)
{
	uint32_t left = 0;
	int taken = 0;

	for (uint32_t i = 0; i < node->kepts; i++) {
		struct op *op = &node->op[node->kept[i] % OPS];
		uint64_t now = now_ns();
		struct weft_event event;
		int rc;

		if (op->id != node->kept[i] || !op->active)
			continue; /* it was refused, or its engine has closed */
		rc = weft_transfer_wait(node->engine, op->handle, 0, &event, sizeof(event));
		if (rc && rc != -ETIMEDOUT)
			fail(op, "weft_transfer_wait said %s", weft_strerror(rc));
		if (rc) {
			op->absent_ns = now;
			node->kept[left++] = node->kept[i];
		} else {
			take(node, &event, op->absent_ns);
			taken++;
		}
	}
	node->kepts = left;
	return taken;
}

int take_events(struct node *node)
{
	struct weft_event events[BATCH];
	uint64_t before = now_ns();
	int total = 0;

	/* -EBUSY: the canceller is in a turn for us. */
	for (int turn = 0; world.manual && turn < TURNS; turn++)
		if ((total = weft_engine_progress(node->engine)) < 0 && total != -EBUSY)
			fail(NULL, "weft_engine_progress said %s", weft_strerror(total));
	total = total > 0;
	for (int q = 0; q < 3; q++) {
		uint64_t now = now_ns();
		int got = weft_queue_poll(node->queue[q], events, sizeof(*events), BATCH);

		if (got < 0)
			fail(NULL, "weft_queue_poll said %s", weft_strerror(got));
		for (int i = 0; i < got; i++)
			take(node, &events[i], node->empty_ns[q]);
		if (got < BATCH)
			node->empty_ns[q] = now;
		total += got;
	}
	total += take_kept(node);
	if (!total && before - node->checked_ns > 5 * WEFT_MILLISECOND) {
		node->checked_ns = before;
		check_overdue(node, before);
	}
	return total;
}
