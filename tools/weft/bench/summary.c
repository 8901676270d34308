/* A whole summary over a control connection: from the peer that drove (--direction in), from a client of
 * several. */
#include "bench.h"
#include "../common/pack.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void pack_latency(struct cmd_pack *pack, const struct cmd_histogram *latency)
{
	uint32_t used = 0;

	for (unsigned i = 0; i < CMD_HISTOGRAM_BUCKETS; i++)
		used += latency->count[i] != 0;
	cmd_pack_u64(pack, latency->smallest);
	cmd_pack_u64(pack, latency->largest);
	cmd_pack_u32(pack, used);
	for (unsigned i = 0; i < CMD_HISTOGRAM_BUCKETS; i++) {
		if (!latency->count[i])
			continue;
		cmd_pack_u32(pack, i);
		cmd_pack_u64(pack, latency->count[i]);
	}
}

static void unpack_latency(struct cmd_unpack *unpack, struct cmd_histogram *latency)
{
	cmd_histogram_reset(latency);
	latency->smallest = cmd_unpack_u64(unpack);
	latency->largest = cmd_unpack_u64(unpack);
	for (uint32_t left = cmd_unpack_u32(unpack); left && !unpack->failed; left--) {
		uint32_t at = cmd_unpack_u32(unpack);
		uint64_t count = cmd_unpack_u64(unpack);

		if (at >= CMD_HISTOGRAM_BUCKETS) {
			unpack->failed = true;
			return;
		}
		latency->count[at] = count;
		latency->total += count;
	}
}

static void pack_rails(struct cmd_pack *pack, const struct bench_summary *summary)
{
	uint32_t rails = summary->rails < CMD_RAILS_MAX ? summary->rails : CMD_RAILS_MAX;

	cmd_pack_u32(pack, rails);
	for (uint32_t i = 0; i < rails; i++) {
		cmd_pack_text(pack, summary->rail[i].name);
		cmd_pack_u32(pack, summary->rail[i].group);
		cmd_pack_u64(pack, summary->rail[i].bytes);
		cmd_pack_u64(pack, summary->rail[i].errors);
		cmd_pack_u64(pack, summary->rail[i].retries);
		cmd_pack_u32(pack, summary->rail[i].local);
		cmd_pack_u64(pack, summary->rail[i].mapped);
	}
}

static void unpack_rails(struct cmd_unpack *unpack, struct bench_summary *summary)
{
	summary->rails = cmd_unpack_u32(unpack);
	if (summary->rails > CMD_RAILS_MAX)
		unpack->failed = true;
	for (uint32_t i = 0; !unpack->failed && i < summary->rails; i++) {
		cmd_unpack_text(unpack, summary->rail[i].name, sizeof summary->rail[i].name);
		summary->rail[i].group = cmd_unpack_u32(unpack);
		summary->rail[i].bytes = cmd_unpack_u64(unpack);
		summary->rail[i].errors = cmd_unpack_u64(unpack);
		summary->rail[i].retries = cmd_unpack_u64(unpack);
		summary->rail[i].local = cmd_unpack_u32(unpack);
		summary->rail[i].mapped = cmd_unpack_u64(unpack);
	}
}

/* The numbers, in one order for both directions. */
static uint64_t *const *numbers(struct bench_summary *summary)
{
	static uint64_t *list[14];

	list[0] = &summary->ops;
	list[1] = &summary->bytes;
	list[2] = &summary->ns;
	list[3] = &summary->cpu_ns;
	list[4] = &summary->peer_cpu_ns;
	list[5] = &summary->failed_ops;
	list[6] = &summary->rails_down;
	list[7] = &summary->rails_up;
	list[8] = &summary->line_bps;
	list[9] = &summary->result.verdict.checked;
	list[10] = &summary->result.verdict.wrong;
	list[11] = &summary->own_rails;
	list[12] = &summary->direct_bytes;
	return list;
}

int bench_summary_pack(struct bench_summary *summary, void *to, size_t room)
{
	uint64_t *const *number = numbers(summary);
	struct bench_ready ready = summary->ready;
	struct cmd_pack pack;
	uint8_t nested[sizeof ready + 64];
	int bytes = bench_ready_pack(&ready, nested, sizeof nested);

	cmd_pack_start(&pack, to, room);
	for (; *number; number++)
		cmd_pack_u64(&pack, **number);
	cmd_pack_u32(&pack, summary->have_result);
	cmd_pack_u32(&pack, (uint32_t)summary->interrupted);
	cmd_pack_u32(&pack, summary->workers);
	cmd_pack_u32(&pack, summary->groups);
	cmd_pack_text(&pack, summary->provider);
	cmd_pack_text(&pack, summary->why);
	cmd_pack_text(&pack, summary->peer);
	cmd_pack_text(&pack, summary->libfabric);
	cmd_pack_text(&pack, summary->host);
	cmd_pack_text(&pack, summary->weft);
	cmd_pack_text(&pack, summary->error);
	cmd_pack_u32(&pack, bytes < 0 ? 0 : (uint32_t)bytes);
	cmd_pack_bytes(&pack, nested, bytes < 0 ? 0 : (size_t)bytes);
	pack_rails(&pack, summary);
	pack_latency(&pack, &summary->latency);
	return bytes < 0 || pack.failed ? -ENOBUFS : (int)pack.used;
}

int bench_summary_unpack(const void *from, size_t bytes, struct bench_summary *ret_summary)
{
	uint64_t *const *number = numbers(ret_summary);
	struct cmd_unpack unpack;
	uint8_t nested[sizeof(struct bench_ready) + 64];

	cmd_unpack_start(&unpack, from, bytes);
	for (; *number; number++)
		**number = cmd_unpack_u64(&unpack);
	ret_summary->have_result = cmd_unpack_u32(&unpack);
	ret_summary->interrupted = (int)(cmd_unpack_u32(&unpack) & 127);
	ret_summary->workers = cmd_unpack_u32(&unpack);
	ret_summary->groups = cmd_unpack_u32(&unpack);
	cmd_unpack_text(&unpack, ret_summary->provider, sizeof ret_summary->provider);
	cmd_unpack_text(&unpack, ret_summary->why, sizeof ret_summary->why);
	cmd_unpack_text(&unpack, ret_summary->peer, sizeof ret_summary->peer);
	cmd_unpack_text(&unpack, ret_summary->libfabric, sizeof ret_summary->libfabric);
	cmd_unpack_text(&unpack, ret_summary->host, sizeof ret_summary->host);
	cmd_unpack_text(&unpack, ret_summary->weft, sizeof ret_summary->weft);
	cmd_unpack_text(&unpack, ret_summary->error, sizeof ret_summary->error);
	uint32_t length = cmd_unpack_u32(&unpack);
	if (length > sizeof nested)
		return -EPROTO;
	cmd_unpack_bytes(&unpack, nested, length);
	if (unpack.failed || bench_ready_unpack(nested, length, &ret_summary->ready) < 0)
		return -EPROTO;
	unpack_rails(&unpack, ret_summary);
	unpack_latency(&unpack, &ret_summary->latency);
	return cmd_unpack_done(&unpack) ? 0 : -EPROTO;
}

int bench_summary_send(struct bench_summary *summary, struct cmd_control *control, uint64_t timeout_ns)
{
	int rc = bench_summary_pack(summary, control->buffer, sizeof control->buffer);

	return rc < 0 ? rc : cmd_control_send(control, CMD_FRAME_SUMMARY, control->buffer, (size_t)rc, timeout_ns);
}
