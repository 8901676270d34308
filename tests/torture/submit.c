/* Random operations of every kind, submitted by a node's thread. */
#include "torture.h"
#include "message.h"

#include <errno.h>
#include <string.h>

#define WINDOW 96 /* operations that a node usually keeps in flight; sometimes it overfills the engine */

static uint8_t *out_of(const struct op *op, uint32_t run)
{
	return run_base(&op->run[run]);
}

static uint64_t offset_of(const struct run *run)
{
	return run->first * SLOT;
}

/* Mostly small, sometimes empty, sometimes large enough for all rails to share. */
static uint64_t random_bytes(struct node *node, uint64_t most)
{
	uint32_t dice = random_below(&node->random, 100);
	uint64_t bytes;

	if (dice < 2)
		return 0;
	if (dice < 50)
		bytes = 1 + random_below(&node->random, 600);
	else if (dice < 90)
		bytes = 1 + random_below(&node->random, 16384);
	else
		bytes = 1 + random_below(&node->random, RUN_SLOTS * SLOT);
	return bytes < most ? bytes : most;
}

static void set_deadline(struct node *node, struct op *op, struct weft_op *to)
{
	uint32_t dice = random_below(&node->random, 100);

	if (dice < 75)
		to->timeout_ns = 3 * WEFT_SECOND;
	else if (dice < 85)
		to->timeout_ns = (1 + random_below(&node->random, 30000)) * WEFT_MICROSECOND;
	else if (dice < 97)
		to->timeout_ns = (100 + random_below(&node->random, 900)) * WEFT_MILLISECOND;
	else
		to->timeout_ns = WEFT_FOREVER; /* its node cancels it in time */
	op->submitted_ns = now_ns();
	if (to->timeout_ns != WEFT_FOREVER)
		op->deadline_ns = op->submitted_ns + to->timeout_ns;
}

static struct weft_op start(struct node *node, struct op *op)
{
	struct weft_op to = { .size = sizeof(to), .queue = node->queue[random_below(&node->random, 3)], .tag = op->id };

	set_deadline(node, op, &to);
	if (node->kepts < OPS && random_chance(&node->random, 10)) {
		to.queue = NULL;
		to.flags = WEFT_KEEP_END;
		op->absent_ns = op->submitted_ns;
		node->kept[node->kepts++] = op->id;
	}
	word_start(node, op, &to);
	return to;
}

/* The payload lives until the call returns: request structures are copied. */
static void set_notify(struct node *node, struct op *op, struct weft_op *to, uint8_t *payload)
{
	uint64_t bytes = random_below(&node->random, WEFT_NOTIFY_MAX + 1);

	if (op->immediate) {
		op->notify = WEFT_NOTIFY_COUNTED;
		to->notify = WEFT_NOTIFY_COUNTED;
		to->immediate = op->immediate;
	} else if (random_chance(&node->random, 60)) {
		op->notify = WEFT_NOTIFY_FENCED;
		pattern_fill(payload, bytes, op->id, 0);
		to->notify = WEFT_NOTIFY_FENCED;
		to->notify_tag = op->id;
		to->notify_payload = payload;
		to->notify_bytes = (uint32_t)bytes;
		word_notify(node, op, to);
	}
}

/* A third of the announced writes are checked from end to end. */
static void set_checksum(struct node *node, const struct op *op, struct weft_op *to)
{
	if (op->notify == WEFT_NOTIFY_FENCED && random_chance(&node->random, 33))
		to->flags |= WEFT_CHECKSUM;
}

static bool no_room(struct node *node, struct op *op)
{
	op_accepted(node, op, -EAGAIN, 0); /* gives everything back */
	return false;
}

static bool submit_write(struct node *node, struct op *op, uint32_t target, uint64_t bytes)
{
	weft_transfer handle = 0;
	uint8_t payload[WEFT_NOTIFY_MAX];
	struct weft_op to;
	struct weft_write write;
	uint32_t skew = random_below(&node->random, 64);

	if (!op_run(op, node->index, false, bytes + 64) || !op_run(op, target, true, bytes + 64))
		return no_room(node, op);
	op_fill(op, 0, bytes + skew, op->id * 7);
	op_move(op, 1, skew, out_of(op, 0) + skew, bytes);
	to = start(node, op);
	set_notify(node, op, &to, payload);
	set_checksum(node, op, &to);
	write = (struct weft_write){ sizeof(struct weft_write),     node->out,
				     offset_of(&op->run[0]) + skew, node->link[target].in,
				     offset_of(&op->run[1]) + skew, bytes };
	int rc = weft_write(node->engine, &write, &to, &handle);

	op_accepted(node, op, rc, handle);
	return !rc;
}

static bool submit_read(struct node *node, struct op *op, uint32_t target)
{
	uint64_t bytes = random_bytes(node, RUN_SLOTS * SLOT - 64);
	weft_transfer handle = 0;
	uint8_t payload[WEFT_NOTIFY_MAX];
	struct weft_op to;
	struct weft_read read;
	int rc;

	if (!op_run(op, target, false, bytes) || !op_run(op, node->index, true, bytes))
		return no_room(node, op);
	op_fill(op, 0, bytes, op->id * 7);
	op_move(op, 1, 0, out_of(op, 0), bytes);
	to = start(node, op);
	set_notify(node, op, &to, payload);
	read = (struct weft_read){ sizeof(struct weft_read), node->link[target].out,
				   offset_of(&op->run[0]),   node->in,
				   offset_of(&op->run[1]),   bytes };
	rc = weft_read(node->engine, &read, &to, &handle);
	op_accepted(node, op, rc, handle);
	return !rc;
}

/* Distinct places among `room`, in random order. */
static void shuffle(struct node *node, uint32_t *index, uint32_t count, uint32_t room)
{
	uint32_t all[2 * MOVES];

	for (uint32_t i = 0; i < room; i++)
		all[i] = i;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t j = i + random_below(&node->random, room - i), keep = all[i];

		all[i] = all[j];
		all[j] = keep;
		index[i] = all[i];
	}
}

/* Pages of the operation's first run and where in its second they go. */
struct layout {
	uint32_t page, count, from[MOVES], at[MOVES];
	const uint32_t *from_index, *at_index; /* NULL: 0, 1, 2, … */
};

/* Takes both runs, from an arena that is sent from to one that receives. False: there is no room. */
static bool lay_out(struct node *node, struct op *op, uint32_t from, uint32_t to, struct layout *layout)
{
	static const uint32_t sizes[] = { 64, 512, 1000, 2048, 4096 };
	uint32_t count = layout->count, page = sizes[random_below(&node->random, 5)];
	uint32_t room = count + random_below(&node->random, count + 1);
	bool straight = random_chance(&node->random, 25);

	while ((uint64_t)page * room > RUN_SLOTS * SLOT)
		page /= 2;
	if (!op_run(op, from, false, (uint64_t)page * room) || !op_run(op, to, true, (uint64_t)page * room))
		return false;
	op_fill(op, 0, (uint64_t)page * room, op->id * 7);
	shuffle(node, layout->at, count, room);
	for (uint32_t i = 0; i < count; i++) {
		layout->from[i] = random_below(&node->random, room);
		if (straight) /* neighbours at both ends, to be joined */
			layout->from[i] = layout->at[i] = i;
		op_move(op, 1, (uint64_t)layout->at[i] * page, out_of(op, 0) + (uint64_t)layout->from[i] * page, page);
	}
	layout->page = page;
	layout->from_index = straight && random_chance(&node->random, 50) ? NULL : layout->from;
	layout->at_index = straight && random_chance(&node->random, 50) ? NULL : layout->at;
	return true;
}

static bool submit_pages(struct node *node, struct op *op, uint32_t target, uint32_t count)
{
	struct layout layout = { .count = count };
	weft_transfer handle = 0;
	uint8_t payload[WEFT_NOTIFY_MAX];
	struct weft_op to;
	struct weft_write_pages pages;
	int rc;

	if (!lay_out(node, op, node->index, target, &layout))
		return no_room(node, op);
	to = start(node, op);
	set_notify(node, op, &to, payload);
	set_checksum(node, op, &to);
	pages = (struct weft_write_pages){ .size = sizeof(struct weft_write_pages),
					   .page_bytes = layout.page,
					   .count = count,
					   .from = node->out,
					   .from_index = layout.from_index,
					   .from_offset = offset_of(&op->run[0]),
					   .to = node->link[target].in,
					   .to_index = layout.at_index,
					   .to_offset = offset_of(&op->run[1]) };
	rc = weft_write_pages(node->engine, &pages, &to, &handle);
	memset(&layout, 0xff, sizeof(layout)); /* the indices were copied */
	op_accepted(node, op, rc, handle);
	return !rc;
}

static bool submit_read_pages(struct node *node, struct op *op, uint32_t target)
{
	struct layout layout = { .count = 1 + random_below(&node->random, MOVES) };
	weft_transfer handle = 0;
	uint8_t payload[WEFT_NOTIFY_MAX];
	struct weft_op to;
	struct weft_read_pages pages;
	int rc;

	if (!lay_out(node, op, target, node->index, &layout))
		return no_room(node, op);
	to = start(node, op);
	set_notify(node, op, &to, payload);
	pages = (struct weft_read_pages){ .size = sizeof(struct weft_read_pages),
					  .page_bytes = layout.page,
					  .count = layout.count,
					  .from = node->link[target].out,
					  .from_index = layout.from_index,
					  .from_offset = offset_of(&op->run[0]),
					  .to = node->in,
					  .to_index = layout.at_index,
					  .to_offset = offset_of(&op->run[1]) };
	rc = weft_read_pages(node->engine, &pages, &to, &handle);
	memset(&layout, 0xff, sizeof(layout)); /* the indices were copied */
	op_accepted(node, op, rc, handle);
	return !rc;
}

static uint32_t random_target(struct node *node)
{
	uint32_t other = random_below(&node->random, world.nodes - 1);

	return other + (other >= node->index);
}

static bool usable(const struct node *node, uint32_t target)
{
	return node->link[target].in && node->link[target].out;
}

static bool submit_scatter(struct node *node, struct op *op)
{
	struct weft_write write[RUNS / 2];
	uint32_t count = 1 + random_below(&node->random, RUNS / 2), only = op->targets;
	weft_transfer handle = 0;
	uint8_t payload[WEFT_NOTIFY_MAX];
	struct weft_op to;
	int rc;

	op->targets = 0;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t target = random_target(node);
		uint64_t bytes = 1 + random_below(&node->random, 6000);

		if (!usable(node, target))
			target = (uint32_t)__builtin_ctz(only);
		if (!op_run(op, node->index, false, bytes) || !op_run(op, target, true, bytes)) {
			op->targets |= only;
			return no_room(node, op);
		}
		op_fill(op, 2 * i, bytes, op->id * 7 + i);
		op_move(op, 2 * i + 1, 0, out_of(op, 2 * i), bytes);
		op->targets |= 1u << target;
		write[i] = (struct weft_write){ sizeof(struct weft_write),      node->out,
						offset_of(&op->run[2 * i]),     node->link[target].in,
						offset_of(&op->run[2 * i + 1]), bytes };
	}
	to = start(node, op);
	set_notify(node, op, &to, payload);
	set_checksum(node, op, &to);
	rc = weft_scatter(node->engine, write, count, &to, &handle);
	op_accepted(node, op, rc, handle);
	return !rc;
}

static bool submit_message(struct node *node, struct op *op, uint32_t target)
{
	static _Thread_local uint8_t data[100000];
	uint64_t most = random_chance(&node->random, 3) ? sizeof(data) : 3000;
	struct message message = { .id = op->id, .sequence = ++node->sequence[target], .from = node->index };
	weft_transfer handle = 0;
	weft_peer peer = node->link[target].peer;
	struct weft_op to = start(node, op);
	int rc;

	if (op->start_word)
		message.sequence = 0; /* it may come at any time */
	message.generation = node->generation;
	message.bytes = sizeof(message) + random_below(&node->random, (uint32_t)(most - sizeof(message)));
	memcpy(data, &message, sizeof(message));
	pattern_fill(data + sizeof(message), message.bytes - sizeof(message), op->id, 0);
	rc = op->kind == KIND_SEND ? weft_send(node->engine, peer, op->id, data, message.bytes, &to, &handle)
				   : weft_call(node->engine, peer, op->id, data, message.bytes, &to, &handle);
	op_accepted(node, op, rc, handle);
	return !rc;
}

/* ---- what takes several nodes ---- */

void post_mail(uint32_t to, const struct mail *mail)
{
	struct node *node = &world.node[to];

	pthread_mutex_lock(&world.lock);
	if (node->mail_tail - node->mail_head < MAIL)
		node->mail[node->mail_tail++ % MAIL] = *mail;
	pthread_mutex_unlock(&world.lock);
}

static bool enter_barrier(struct node *node, uint64_t id, uint32_t members)
{
	struct barrier *barrier = &world.barrier[id % BARRIERS];
	struct op *op = op_take(node, KIND_BARRIER, members & ~(1u << node->index));
	weft_transfer handle = 0;
	weft_peer peers[NODES];
	struct weft_op to;
	uint32_t count = 0;
	int rc;

	if (!op)
		return false;
	for (uint32_t i = 0; i < world.nodes; i++)
		if (op->targets & 1u << i)
			peers[count++] = node->link[i].peer;
	op->barrier = id;
	to = start(node, op);
	pthread_mutex_lock(&world.lock);
	if (barrier->id == id)
		barrier->entered |= 1u << node->index;
	pthread_mutex_unlock(&world.lock);
	rc = weft_barrier(node->engine, peers, count, id, &to, &handle);
	op_accepted(node, op, rc, handle);
	return !rc;
}

static bool start_barrier(struct node *node)
{
	uint32_t members = 1u << node->index | 1u << random_target(node);
	struct mail mail = { .kind = KIND_BARRIER, .from = node->index };

	if (random_chance(&node->random, 30))
		members |= 1u << random_target(node);
	for (uint32_t i = 0; i < world.nodes; i++)
		if (members & 1u << i && i != node->index && !node->link[i].peer)
			return false;
	pthread_mutex_lock(&world.lock);
	mail.id = ++world.barriers;
	mail.members = members;
	world.barrier[mail.id % BARRIERS] = (struct barrier){ mail.id, members, 0 };
	pthread_mutex_unlock(&world.lock);
	for (uint32_t i = 0; i < world.nodes; i++)
		if (members & 1u << i && i != node->index)
			post_mail(i, &mail);
	return enter_barrier(node, mail.id, members);
}

static bool start_expect(struct node *node)
{
	uint32_t count = 1 + random_below(&node->random, 8),
		 immediate = node->generation << 16 | ++node->next_immediate;
	struct mail mail = { .kind = KIND_EXPECT,
			     .from = node->index,
			     .generation = node->generation,
			     .immediate = immediate,
			     .count = count };
	bool first = random_chance(&node->random, 50);
	struct op *op;
	weft_transfer handle = 0;
	struct weft_op to;
	int rc;

	/* An immediate that was counted and never asked for keeps its place in the engine's table. */
	if (node->dirty_immediates > 3000 || node->next_immediate >= 0xffff || !(op = op_take(node, KIND_EXPECT, 0)))
		return false;
	op->immediate = immediate;
	pthread_mutex_lock(&world.lock);
	world.counted[node->index][immediate % IMMEDIATES] =
	    (struct counted){ .immediate = immediate, .expected = count };
	pthread_mutex_unlock(&world.lock);
	if (first)
		post_mail(random_target(node), &mail);
	to = start(node, op);
	rc = weft_expect(node->engine, 0, immediate, count, &to, &handle);
	op_accepted(node, op, rc, handle);
	if (!first && !rc)
		post_mail(random_target(node), &mail);
	return !rc;
}

/* Sends counted writes that a node asked for, alone or as pages. Returns false to try again later. */
static bool send_counted(struct node *node, struct mail *mail)
{
	struct counted *counted = &world.counted[mail->from][mail->immediate % IMMEDIATES];

	while (mail->count) {
		bool paged = random_chance(&node->random, 40), ok;
		uint32_t count = paged ? 1 + random_below(&node->random, mail->count) : 1;
		struct op *op;

		if (!usable(node, mail->from) || node->link[mail->from].generation != mail->generation)
			return false;
		op = op_take(node, paged ? KIND_PAGES : KIND_WRITE, 1u << mail->from);
		if (!op)
			return false;
		pthread_mutex_lock(&world.lock);
		op->immediate = mail->immediate;
		op->immediates = count;
		op->notify = WEFT_NOTIFY_COUNTED;
		if (counted->immediate == mail->immediate)
			counted->submitted += count; /* before it can land; taken back if it is refused */
		pthread_mutex_unlock(&world.lock);
		ok = paged ? submit_pages(node, op, mail->from, count)
			   : submit_write(node, op, mail->from, 1 + random_below(&node->random, 9000));
		if (!ok)
			return false;
		mail->count -= count;
	}
	return true;
}

void submit_mail(struct node *node)
{
	for (int i = 0; i < 4; i++) {
		struct mail mail;
		bool ready = false, ok = true;

		pthread_mutex_lock(&world.lock);
		if (node->mail_head != node->mail_tail) {
			mail = node->mail[node->mail_head++ % MAIL];
			ready = true;
		}
		pthread_mutex_unlock(&world.lock);
		if (!ready)
			return;
		if (mail.kind == KIND_BARRIER) {
			for (uint32_t n = 0; n < world.nodes; n++)
				ok &= !(mail.members & 1u << n) || n == node->index || node->link[n].peer;
			if (ok && random_chance(&node->random, 95))
				enter_barrier(node, mail.id, mail.members);
		} else if (!send_counted(node, &mail) && ++mail.tries < 20) {
			post_mail(node->index, &mail);
		}
	}
}

/* ---- one random operation ---- */

static const uint8_t weights[KINDS] = { 30, 15, 8, 12, 18, 10, 3, 4 };

static enum kind random_kind(struct node *node)
{
	uint32_t dice = random_below(&node->random, 100), kind = 0;

	while (dice >= weights[kind])
		dice -= weights[kind++];
	return (enum kind)kind;
}

bool submit_probe(struct node *node, uint32_t target)
{
	struct op *op = usable(node, target) ? op_take(node, KIND_WRITE, 1u << target) : NULL;

	return op && submit_write(node, op, target, 5000);
}

bool submit_random(struct node *node)
{
	enum kind kind = random_kind(node);
	uint32_t target = random_target(node), window = random_chance(&node->random, 1) ? OPS : WINDOW;
	struct op *op;

	if (node->active >= window)
		return false;
	if (kind == KIND_BARRIER)
		return start_barrier(node);
	if (kind == KIND_EXPECT)
		return start_expect(node);
	if (!usable(node, target) || !(op = op_take(node, kind, 1u << target)))
		return false;
	switch (kind) {
	case KIND_WRITE:
		return submit_write(node, op, target, random_bytes(node, RUN_SLOTS * SLOT - 64));
	case KIND_PAGES:
		return submit_pages(node, op, target, 1 + random_below(&node->random, MOVES));
	case KIND_SCATTER:
		return submit_scatter(node, op);
	case KIND_READ:
		return random_chance(&node->random, 50) ? submit_read(node, op, target)
							: submit_read_pages(node, op, target);
	default:
		return submit_message(node, op, target);
	}
}
