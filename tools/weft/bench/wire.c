/* What goes over the control connection, every field checked when unpacked; and which operation is what. */
#include "bench.h"
#include "../common/pack.h"

#include <errno.h>

enum {
	FLAG_VERIFY = 1,
	FLAG_MANUAL = 2,
	FLAG_SIMULATED = 4,
	FLAG_CHECKSUM = 8,
	FLAG_REVERSE = 16,
	FLAG_OWN = 32,
	FLAGS = 63
};

bool bench_op_is_message(int op)
{
	return op == BENCH_SEND || op == BENCH_CALL;
}

const char *bench_op_counted(int op)
{
	return op == BENCH_CALL ? "calls" : op == BENCH_SEND ? "messages" : NULL;
}

bool bench_op_uses_region(int op)
{
	return !bench_op_is_message(op);
}

static int packed(const struct cmd_pack *pack)
{
	return pack->failed ? -ENOBUFS : (int)pack->used;
}

int bench_params_pack(const struct bench_params *params, void *to, size_t room)
{
	struct cmd_pack pack;
	cmd_pack_start(&pack, to, room);
	cmd_pack_u32(&pack, (uint32_t)params->op);
	cmd_pack_u32(&pack, (params->verify ? FLAG_VERIFY : 0) | (params->manual ? FLAG_MANUAL : 0) |
				(params->simulated ? FLAG_SIMULATED : 0) | (params->checksum ? FLAG_CHECKSUM : 0) |
				(params->reverse ? FLAG_REVERSE : 0) | (params->own_memory ? FLAG_OWN : 0));
	cmd_pack_u32(&pack, params->card[0]);
	cmd_pack_u32(&pack, params->card[1]);
	cmd_pack_u64(&pack, params->slot_bytes);
	cmd_pack_u64(&pack, params->pages);
	cmd_pack_u64(&pack, params->slots);
	cmd_pack_u64(&pack, params->depth);
	cmd_pack_u64(&pack, params->seed);
	cmd_pack_u64(&pack, params->timeout_ns);
	cmd_pack_u64(&pack, params->workers);
	cmd_pack_u64(&pack, params->rail_limit_ns);
	cmd_pack_u64(&pack, params->peer_limit_ns);
	cmd_pack_u64(&pack, params->duration_ns);
	cmd_pack_u64(&pack, params->warmup_ns);
	cmd_pack_u64(&pack, params->ops);
	cmd_pack_text(&pack, params->provider);
	cmd_pack_text(&pack, params->rails);
	cmd_pack_text(&pack, params->avoid);
	return packed(&pack);
}

int bench_params_unpack(const void *from, size_t bytes, struct bench_params *ret_params)
{
	struct bench_params params = { 0 };
	struct cmd_unpack unpack;
	uint64_t total;

	cmd_unpack_start(&unpack, from, bytes);
	uint32_t op = cmd_unpack_u32(&unpack), flags = cmd_unpack_u32(&unpack);
	params.op = (int)op;
	params.verify = flags & FLAG_VERIFY;
	params.manual = flags & FLAG_MANUAL;
	params.simulated = flags & FLAG_SIMULATED;
	params.checksum = flags & FLAG_CHECKSUM;
	params.reverse = flags & FLAG_REVERSE;
	params.own_memory = flags & FLAG_OWN;
	params.card[0] = cmd_unpack_u32(&unpack);
	params.card[1] = cmd_unpack_u32(&unpack);
	params.slot_bytes = cmd_unpack_u64(&unpack);
	params.pages = cmd_unpack_u64(&unpack);
	params.slots = cmd_unpack_u64(&unpack);
	params.depth = cmd_unpack_u64(&unpack);
	params.seed = cmd_unpack_u64(&unpack);
	params.timeout_ns = cmd_unpack_u64(&unpack);
	params.workers = cmd_unpack_u64(&unpack);
	params.rail_limit_ns = cmd_unpack_u64(&unpack);
	params.peer_limit_ns = cmd_unpack_u64(&unpack);
	params.duration_ns = cmd_unpack_u64(&unpack);
	params.warmup_ns = cmd_unpack_u64(&unpack);
	params.ops = cmd_unpack_u64(&unpack);
	cmd_unpack_text(&unpack, params.provider, sizeof params.provider);
	cmd_unpack_text(&unpack, params.rails, sizeof params.rails);
	cmd_unpack_text(&unpack, params.avoid, sizeof params.avoid);
	if (!cmd_unpack_done(&unpack) || op >= BENCH_OPS || flags & ~(uint32_t)FLAGS)
		return -EPROTO;
	if (params.card[0] > BENCH_CARDS_MAX || params.card[1] > BENCH_CARDS_MAX ||
	    (bench_op_is_message(params.op) && (params.card[0] || params.card[1])))
		return -EPROTO;
	if (!params.slot_bytes || !params.pages || !params.slots || !params.depth || !params.timeout_ns)
		return -EPROTO;
	if (params.slots > CMD_SLOT_MAX || params.pages > params.slots || params.depth > UINT32_MAX ||
	    params.workers > UINT32_MAX || __builtin_mul_overflow(params.slots, params.slot_bytes, &total))
		return -EPROTO;
	if (bench_op_is_message(params.op) && params.slot_bytes > BENCH_MESSAGE_MAX)
		return -EPROTO;
	/* The driving side has a place for everything in flight. */
	if (params.depth > BENCH_DEPTH_MAX ||
	    (bench_op_uses_region(params.op) && params.depth * params.pages > params.slots))
		return -EPROTO;
	*ret_params = params;
	return 0;
}

int bench_ready_pack(const struct bench_ready *ready, void *to, size_t room)
{
	struct cmd_pack pack;
	cmd_pack_start(&pack, to, room);
	cmd_pack_text(&pack, ready->provider);
	cmd_pack_u32(&pack, ready->rails);
	cmd_pack_u64(&pack, ready->line_bps);
	cmd_pack_text(&pack, ready->host);
	cmd_pack_text(&pack, ready->weft);
	cmd_pack_text(&pack, ready->libfabric);
	cmd_pack_u32(&pack, ready->workers);
	return packed(&pack);
}

int bench_ready_unpack(const void *from, size_t bytes, struct bench_ready *ret_ready)
{
	struct bench_ready ready;
	struct cmd_unpack unpack;
	cmd_unpack_start(&unpack, from, bytes);
	cmd_unpack_text(&unpack, ready.provider, sizeof ready.provider);
	ready.rails = cmd_unpack_u32(&unpack);
	ready.line_bps = cmd_unpack_u64(&unpack);
	cmd_unpack_text(&unpack, ready.host, sizeof ready.host);
	cmd_unpack_text(&unpack, ready.weft, sizeof ready.weft);
	cmd_unpack_text(&unpack, ready.libfabric, sizeof ready.libfabric);
	ready.workers = cmd_unpack_u32(&unpack);
	if (!cmd_unpack_done(&unpack))
		return -EPROTO;
	*ret_ready = ready;
	return 0;
}

int bench_result_pack(const struct bench_result *result, void *to, size_t room)
{
	const struct cmd_verdict *verdict = &result->verdict;
	struct cmd_pack pack;
	cmd_pack_start(&pack, to, room);
	cmd_pack_u64(&pack, verdict->checked);
	cmd_pack_u64(&pack, verdict->wrong);
	cmd_pack_u64(&pack, verdict->unknown);
	cmd_pack_u64(&pack, verdict->first_slot);
	cmd_pack_u64(&pack, verdict->first_offset);
	cmd_pack_u64(&pack, verdict->first_expected);
	cmd_pack_u32(&pack, verdict->wanted);
	cmd_pack_u32(&pack, verdict->found);
	cmd_pack_u64(&pack, result->messages);
	cmd_pack_u64(&pack, result->message_bytes);
	cmd_pack_u64(&pack, result->cpu_ns);
	cmd_pack_u64(&pack, result->disorder);
	return packed(&pack);
}

int bench_result_unpack(const void *from, size_t bytes, struct bench_result *ret_result)
{
	struct bench_result result;
	struct cmd_verdict *verdict = &result.verdict;
	struct cmd_unpack unpack;
	cmd_unpack_start(&unpack, from, bytes);
	verdict->checked = cmd_unpack_u64(&unpack);
	verdict->wrong = cmd_unpack_u64(&unpack);
	verdict->unknown = cmd_unpack_u64(&unpack);
	verdict->first_slot = cmd_unpack_u64(&unpack);
	verdict->first_offset = cmd_unpack_u64(&unpack);
	verdict->first_expected = cmd_unpack_u64(&unpack);
	uint32_t wanted = cmd_unpack_u32(&unpack), found = cmd_unpack_u32(&unpack);
	verdict->wanted = (uint8_t)wanted;
	verdict->found = (uint8_t)found;
	result.messages = cmd_unpack_u64(&unpack);
	result.message_bytes = cmd_unpack_u64(&unpack);
	result.cpu_ns = cmd_unpack_u64(&unpack);
	result.disorder = cmd_unpack_u64(&unpack);
	if (!cmd_unpack_done(&unpack) || wanted > 255 || found > 255 || verdict->wrong > verdict->checked)
		return -EPROTO;
	*ret_result = result;
	return 0;
}
