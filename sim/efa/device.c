/*
 * The devices of the simulated machine as libibverbs and libefa show them: names, addresses, limits, capabilities by
 * generation; opening them; protection domains. Set-up paths, any thread.
 */
#include "card.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct model model;
static pthread_once_t once = PTHREAD_ONCE_INIT;

void card_say(const char *format, ...)
{
	char text[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	fprintf(stderr, "simulated EFA card: %s\n", text);
}

void strict_fail(const char *format, ...)
{
	char text[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	card_say("misuse: %s", text);
	if (model.spec.strict)
		abort();
}

/* What each generation of cards can do. emulated=1 takes the writes away, as on the first one. */
static uint32_t capabilities(const struct sim_spec *spec)
{
	uint32_t caps = CAN_READ | CAN_RETRY | CAN_SGID;

	if (spec->machine.nic_device >= 0xefa1)
		caps |= CAN_WRITE;
	if (spec->machine.nic_device >= 0xefa2)
		caps |= CAN_WRITE_UNSOLICITED;
	if (spec->emulated)
		caps &= ~(uint32_t)(CAN_WRITE | CAN_WRITE_UNSOLICITED);
	return caps;
}

/* All processes that play one host have its GIDs, as on a real one: FNV-1a of its name, the NIC in the last byte. */
static void name_gid(const char *host, int nic, union ibv_gid *gid)
{
	uint64_t hash = 0xcbf29ce484222325ull;

	for (const char *c = host; *c; c++)
		hash = (hash ^ (uint8_t)*c) * 0x100000001b3ull;
	memset(gid, 0, sizeof *gid);
	gid->raw[0] = 0xfe;
	gid->raw[1] = 0x80;
	for (int i = 0; i < 7; i++)
		gid->raw[8 + i] = (uint8_t)(hash >> (8 * i));
	gid->raw[15] = (uint8_t)(nic + 1);
}

static void make_device(struct card_device *device, int nic)
{
	char root[80];

	sysfs_root(root, sizeof root);
	device->nic = nic;
	device->base.node_type = IBV_NODE_UNSPECIFIED;
	device->base.transport_type = IBV_TRANSPORT_UNSPECIFIED;
	sim_machine_nic_name(&model.spec.machine, nic, device->base.name, sizeof device->base.name);
	snprintf(device->base.dev_name, sizeof device->base.dev_name, "uverbs%d", nic);
	snprintf(device->base.dev_path, sizeof device->base.dev_path, "%s/class/infiniband_verbs/uverbs%d", root, nic);
	snprintf(device->base.ibdev_path, sizeof device->base.ibdev_path, "%s/class/infiniband/%.64s", root,
		 device->base.name);
	name_gid(model.spec.host, nic, &device->gid);
}

static int open_control(void)
{
	int rc;

	if (!model.spec.control[0]) {
		model.control = calloc(1, sizeof *model.control);
		return model.control ? 0 : -ENOMEM;
	}
	rc = sim_control_open(model.spec.control, &model.control);
	if (rc)
		card_say("control file '%s': %s", model.spec.control,
			 rc == -EINVAL ? "not a control file" : strerror(-rc));
	else
		atomic_store(&model.control->seed, model.spec.seed);
	return rc;
}

static void set_up(void)
{
	const char *text = getenv("SIMFAB");
	char error[256];

	if (!text || !*text)
		return;
	if (sim_spec_parse(text, &model.spec, error, sizeof error)) {
		card_say("SIMFAB=%s: %s", text, error);
		return;
	}
	if (!model.spec.card_efa || open_control())
		return;
	sim_clock_start();
	wire_reap();
	qpn_reap();
	model.caps = capabilities(&model.spec);
	model.devices = calloc(model.spec.nics, sizeof *model.devices);
	if (!model.devices)
		return;
	for (int i = 0; i < (int)model.spec.nics; i++)
		make_device(&model.devices[i], i);
	if (!sysfs_make(model.devices, (int)model.spec.nics))
		model.count = (int)model.spec.nics;
}

bool model_ready(void)
{
	pthread_once(&once, set_up);
	return model.count > 0;
}

API struct ibv_device **ibv_get_device_list(int *ret_count)
{
	struct ibv_device **list;

	model_ready();
	list = calloc((size_t)model.count + 1, sizeof *list);
	for (int i = 0; list && i < model.count; i++)
		list[i] = &model.devices[i].base;
	if (ret_count)
		*ret_count = list ? model.count : 0;
	return list;
}

API void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

API const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

API int ibv_fork_init(void)
{
	return 0;
}

/* What new kernels say: a child's copy of a page does not take the parent's pinned one away. */
API enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

/* The nearest of InfiniBand's rates: that is how a port tells its speed. */
static void link_rate(struct ibv_port_attr *port)
{
	static const struct {
		uint32_t gbit;
		uint8_t width, speed;
	} rates[] = { { 25, 1, 32 }, { 50, 1, 64 }, { 100, 2, 32 }, { 200, 2, 64 }, { 400, 2, 128 }, { 800, 4, 128 } };
	uint64_t gbit = model.spec.rate_bps / 1000000000ull;
	size_t i = 0;

	if (!gbit)
		gbit = model.spec.machine.rate_bps / 1000000000ull;
	while (i + 1 < sizeof rates / sizeof rates[0] && rates[i].gbit < gbit)
		i++;
	port->active_width = rates[i].width;
	port->active_speed = rates[i].speed;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t bytes)
{
	struct ibv_port_attr full = { .state = IBV_PORT_ACTIVE,
				      .max_mtu = IBV_MTU_4096,
				      .active_mtu = IBV_MTU_4096,
				      .gid_tbl_len = 1,
				      .max_msg_sz = model.spec.machine.mtu + CARD_HEADER,
				      .pkey_tbl_len = 1,
				      .max_vl_num = 1,
				      .phys_state = 5 };

	if (port != 1)
		return EINVAL;
	link_rate(&full);
	memcpy(attr, &full, bytes < sizeof full ? bytes : sizeof full);
	return 0;
}

/* The symbol has the structure of its first release, which is shorter. */
API int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	return query_port(context, port, (struct ibv_port_attr *)attr, offsetof(struct ibv_port_attr, port_cap_flags2));
}

API int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	if (port != 1 || index)
		return EINVAL;
	*gid = card_of(context)->device->gid;
	return 0;
}

API int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	*pkey = 0xffff;
	return port != 1 || index ? EINVAL : 0;
}

API int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	const struct sim_machine *machine = &model.spec.machine;

	*attr = (struct ibv_device_attr){ .node_guid = card_of(context)->device->gid.global.interface_id,
					  .max_mr_size = 1ull << 40,
					  .page_size_cap = 0xfffff000,
					  .vendor_id = machine->nic_vendor,
					  .vendor_part_id = machine->nic_device,
					  .hw_ver = machine->nic_device,
					  .max_qp = CARD_QPS,
					  .max_qp_wr = (int)model.spec.tx,
					  .max_sge = CARD_SQ_SGE,
					  .max_sge_rd = 1,
					  .max_cq = 2 * CARD_QPS,
					  .max_cqe = CARD_CQ_DEPTH,
					  .max_mr = WIRE_MR_SLOTS,
					  .max_pd = 256,
					  .max_ah = CARD_AHS,
					  .phys_port_cnt = 1 };
	snprintf(attr->fw_ver, sizeof attr->fw_ver, "0.0.0.0");
	return 0;
}

static int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *attr, size_t bytes)
{
	memset(attr, 0, bytes);
	return ibv_query_device(context, &attr->orig_attr);
}

API int efadv_query_device(struct ibv_context *context, struct efadv_device_attr *attr, uint32_t bytes)
{
	struct efadv_device_attr full = { .max_sq_wr = (uint32_t)model.spec.tx,
					  .max_rq_wr = (uint32_t)model.spec.rx * CARD_RQ_SGE,
					  .max_sq_sge = CARD_SQ_SGE,
					  .max_rq_sge = CARD_RQ_SGE,
					  .inline_buf_size = CARD_INLINE,
					  .device_caps = model.caps,
					  .max_rdma_size = CARD_RDMA_SIZE };

	memcpy(attr, &full, bytes < sizeof full ? bytes : sizeof full);
	return 0;
}

static void set_time(struct card *card)
{
	const struct sim_spec *spec = &model.spec;

	if (spec->rate_bps)
		card->ticks_per_byte =
		    (uint64_t)(8e9 / (double)spec->rate_bps * sim_ticks_per_ns * (double)(1u << 20) + 0.5);
	card->op_ticks = sim_ticks_of_ns(spec->op_ns);
	card->latency_ticks = sim_ticks_of_ns(spec->latency_ns);
	card->jitter_ticks = sim_ticks_of_ns(spec->jitter_ns);
	card->random = (spec->seed * 0x9e3779b97f4a7c15ull + (uint64_t)card->device->nic) | 1;
}

/* Through this interface only datagrams: SRD is the driver's own. */
static struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	return qp_create(context, attr, false);
}

API struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct card *card = calloc(1, sizeof *card);

	if (!card)
		return NULL;
	card->device = CONTAINER_OF(device, struct card_device, base);
	set_time(card);
	pthread_mutex_init(&card->lock, NULL);
	card->verbs.sz = sizeof card->verbs;
	card->verbs.query_port = query_port;
	card->verbs.query_device_ex = query_device_ex;
	card->verbs.create_cq_ex = cq_create;
	card->verbs.create_qp_ex = create_qp_ex;
	card->verbs.context.device = device;
	card->verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	card->verbs.context.cmd_fd = card->verbs.context.async_fd = -1;
	card->verbs.context.num_comp_vectors = 1;
	card->verbs.context.ops.post_send = post_send;
	card->verbs.context.ops.post_recv = post_recv;
	card->verbs.context.ops.req_notify_cq = cq_arm;
	pthread_mutex_init(&card->verbs.context.mutex, NULL);
	return &card->verbs.context;
}

int card_attach(struct card *card)
{
	int rc = 0;

	pthread_mutex_lock(&card->lock);
	if (card->pid == getpid())
		goto unlock;
	card->map = wire_create(WIRE_NIC, sizeof(struct wire_nic));
	if (!card->map) {
		rc = errno ? errno : ENOMEM;
		goto unlock;
	}
	card->wire = wire_memory(card->map);
	snprintf(card->wire->host, sizeof card->wire->host, "%s", model.spec.host);
	card->wire->nic = (uint32_t)card->device->nic;
	atomic_store(&card->wire->ticks_per_byte, card->ticks_per_byte);
	card->pid = getpid();
unlock:
	pthread_mutex_unlock(&card->lock);
	return rc ? rc : ticker_start(card); /* outside: the ticker takes cards' locks with its own */
}

API int ibv_close_device(struct ibv_context *context)
{
	struct card *card = card_of(context);

	if (card->qps || card->cqs)
		return EBUSY;
	if (card->pid == getpid()) {
		ticker_stop(card);
		targets_forget(card, NULL);
		wire_destroy(card->map);
	}
	free(card->mr_free);
	free(card->heap);
	free(card);
	return 0;
}

API struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct protection_domain *pd = calloc(1, sizeof *pd);
	struct card *card = card_of(context);

	if (!pd)
		return NULL;
	pd->base.context = context;
	pthread_mutex_lock(&card->lock);
	pd->number = (uint16_t)(++card->pd_next & 0x3fff);
	pthread_mutex_unlock(&card->lock);
	return &pd->base;
}

API int ibv_dealloc_pd(struct ibv_pd *base)
{
	struct protection_domain *pd = CONTAINER_OF(base, struct protection_domain, base);

	if (atomic_load(&pd->users))
		return EBUSY;
	free(pd);
	return 0;
}

/* Before any thread: the provider reads the version of the verbs ABI below it. */
__attribute__((constructor)) static void point_at_sysfs(void)
{
	const char *text = getenv("SIMFAB");
	char root[80];

	if (!text || !strstr(text, "card=efa"))
		return;
	sysfs_root(root, sizeof root);
	setenv("SYSFS_PATH", root, 0);
}
