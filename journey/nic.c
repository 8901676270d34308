/* One NIC through libfabric: found, opened, introduced to the other side's. What chapters 2 and 4 explain. */
#include "common.h"

#include <sched.h>

/* What a NIC tells the other side about itself and its memory. */
struct card {
	char address[64];
	uint64_t address_bytes, base, key;
};

void check(int result, const char *what)
{
	if (result < 0)
		die("%s: %s", what, fi_strerror(-result));
}

/* guide: hints */
/* What the program needs of a provider (caps) and what it is ready to do for one (mode, mr_mode). */
static struct fi_info *make_hints(const char *provider, uint64_t completion)
{
	struct fi_info *hints = fi_allocinfo();

	if (!hints)
		die("no memory");
	hints->caps = FI_MSG | FI_RMA;          /* SEND and RECV; WRITE into the peer's memory */
	hints->ep_attr->type = FI_EP_RDM;       /* reliable datagrams: no connection to manage */
	hints->mode = FI_CONTEXT | FI_CONTEXT2; /* every operation comes with storage for the provider */
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->threading = FI_THREAD_DOMAIN; /* one thread per NIC at a time: no locks inside */
	hints->tx_attr->op_flags = completion;
	hints->fabric_attr->prov_name = strdup(provider);
	return hints;
}
/* guide end */

/* Over sockets a completion says "in the socket's buffer" unless delivery is asked for. */
static bool uses_sockets(const char *provider)
{
	return !strncmp(provider, "tcp", 3) || !strncmp(provider, "net", 3) || !strncmp(provider, "sockets", 7);
}

/*
 * "tcp" means the native provider, which libfabric 1.x calls net: the one it calls tcp needs 70 MB per endpoint. Some providers
 * cannot promise that what completed has landed: asked for first, done without else.
 */
static struct fi_info *ask(const struct pair *pair, const char *source)
{
	const char *names[] = { !strcmp(pair->provider, "tcp") ? "net" : pair->provider, pair->provider };
	const uint64_t completions[] = { FI_DELIVERY_COMPLETE, 0 };
	uint32_t known = FI_VERSION(1, 18),
		 version = fi_version() < known ? fi_version() : known; /* what we were written for */
	struct fi_info *found = NULL;
	int result = -FI_ENODATA;

	for (int i = pair->card ? 0 : 4; i < 8 && !found; i++) {
		struct fi_info *hints = make_hints(names[i / 2 % 2], completions[i % 2]);

		if (i < 4) {
			hints->caps |= FI_HMEM;
			hints->domain_attr->mr_mode |= FI_MR_HMEM;
		}
		result = fi_getinfo(version, source, NULL, source ? FI_SOURCE : 0, hints, &found);
		fi_freeinfo(hints);
	}
	if (!found)
		die("no NIC of provider %s%s%s: %s (fi_info -p %s says more)", pair->provider, source ? " at " : "",
		    source ? source : "", fi_strerror(-result), pair->provider);
	return found;
}

/* Adds what libfabric lists, behind the first `count` of infos. Returns how many there are then. */
static int add_nics(const struct pair *pair, const char *source, struct fi_info *infos[MAX_NICS], int count)
{
	struct fi_info *found = ask(pair, source);
	int first = count;

	/* A device is listed again for each of its addresses and modes: the first is the provider's own choice. */
	for (struct fi_info *info = found; info && count < MAX_NICS; info = info->next) {
		bool known = false;

		for (int i = first; i < count; i++)
			known |= !strcmp(infos[i]->domain_attr->name, info->domain_attr->name);
		if (!known && !(infos[count++] = fi_dupinfo(info)))
			die("no memory");
	}
	fi_freeinfo(found);
	return count;
}

int nics_find(const struct pair *pair, struct fi_info *infos[MAX_NICS])
{
	char list[1024], *rest = list, *address;
	int count = 0;

	if (!pair->from)
		return add_nics(pair, uses_sockets(pair->provider) && *pair->source ? pair->source : NULL, infos, 0);
	if (strlen(pair->from) >= sizeof(list))
		die("--from takes up to %zu characters", sizeof(list) - 1);
	strcpy(list, pair->from);
	while ((address = strsep(&rest, ",")) && count < MAX_NICS)
		count = add_nics(pair, address, infos, count);
	return count;
}

/* guide: open */
void nic_open(struct nic *nic, struct fi_info *info)
{
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_DATA, .size = info->tx_attr->size + info->rx_attr->size };
	struct fi_av_attr av = { .type = info->domain_attr->av_type };
	struct fi_eq_attr eq = { .wait_obj = FI_WAIT_NONE };

	memset(nic, 0, sizeof(*nic));
	nic->info = info;
	nic->delivery = uses_sockets(info->fabric_attr->prov_name) ? FI_DELIVERY_COMPLETE : 0;
	check(fi_fabric(info->fabric_attr, &nic->fabric, NULL), "fi_fabric"); /* the network */
	check(fi_domain(nic->fabric, info, &nic->domain, NULL), "fi_domain"); /* the NIC */
	check(fi_eq_open(nic->fabric, &eq, &nic->eq, NULL), "fi_eq_open");    /* EFA aborts without one */
	check(fi_cq_open(nic->domain, &cq, &nic->cq, NULL), "fi_cq_open");    /* where ends are reported */
	check(fi_av_open(nic->domain, &av, &nic->av, NULL), "fi_av_open");    /* addresses of peers */
	check(fi_endpoint(nic->domain, info, &nic->ep, NULL), "fi_endpoint"); /* the pair of queues */
	check(fi_ep_bind(nic->ep, &nic->eq->fid, 0), "fi_ep_bind eq");
	check(fi_ep_bind(nic->ep, &nic->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind cq");
	check(fi_ep_bind(nic->ep, &nic->av->fid, 0), "fi_ep_bind av");
	check(fi_enable(nic->ep), "fi_enable");
}
/* guide end */

void nic_open_first(struct nic *nic, const struct pair *pair)
{
	struct fi_info *infos[MAX_NICS];
	int count = nics_find(pair, infos);

	for (int i = 1; i < count; i++)
		fi_freeinfo(infos[i]);
	nic_open(nic, infos[0]);
}

static int try_register(struct nic *nic, void *base, size_t bytes, enum fi_hmem_iface where, struct fid_mr **ret_mr)
{
	static uint64_t key; /* where the provider does not choose it, it must differ */
	struct iovec range = { base, bytes };
	struct fi_mr_attr attr = { .mr_iov = &range,
				   .iov_count = 1,
				   .access = FI_SEND | FI_RECV | FI_WRITE | FI_READ | FI_REMOTE_WRITE | FI_REMOTE_READ,
				   .requested_key = ++key,
				   .iface = where };

	return fi_mr_regattr(nic->domain, &attr, 0, ret_mr);
}

/* Chosen for what the NIC reads and writes: the base is ours until nic_introduce() learns the other side's. */
static void use_region(struct nic *nic, struct fid_mr *mr, void *base)
{
	nic->mr = mr;
	nic->desc = fi_mr_desc(mr);
	nic->remote_base = (uintptr_t)base;
}

struct fid_mr *nic_register_more(struct nic *nic, void *base, size_t bytes)
{
	struct fid_mr *mr;

	check(try_register(nic, base, bytes, FI_HMEM_SYSTEM, &mr), "fi_mr_regattr");
	return mr;
}

void nic_register(struct nic *nic, void *base, size_t bytes)
{
	use_region(nic, nic_register_more(nic, base, bytes), base);
}

bool nic_register_card(struct nic *nic, void *base, size_t bytes)
{
	bool simulated = getenv("SIMFAB"); /* which takes any memory for the host's */
	struct fid_mr *mr;

	if (simulated || !(nic->info->caps & FI_HMEM) || try_register(nic, base, bytes, FI_HMEM_CUDA, &mr))
		return false;
	use_region(nic, mr, base);
	return true;
}

/* guide: introduce */
void nic_introduce(struct nic *nic, const struct pair *pair)
{
	bool by_address = nic->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;
	struct card ours = { .address_bytes = sizeof(ours.address) }, theirs;
	size_t bytes = sizeof(ours.address);

	check(fi_getname(&nic->ep->fid, ours.address, &bytes), "fi_getname");
	ours.address_bytes = bytes;
	if (nic->mr) {
		ours.base = by_address ? nic->remote_base : 0; /* else writers count from the region's start */
		ours.key = fi_mr_key(nic->mr);
	}
	pair_send(pair, &ours, sizeof(ours));
	pair_receive(pair, &theirs, sizeof(theirs));
	if (fi_av_insert(nic->av, theirs.address, 1, &nic->peer, 0, NULL) != 1)
		die("fi_av_insert: the other side's address is refused");
	nic->remote_base = theirs.base;
	nic->remote_key = theirs.key;
}
/* guide end */

void nic_close(struct nic *nic)
{
	struct fid *order[] = { nic->ep ? &nic->ep->fid : NULL,        nic->mr ? &nic->mr->fid : NULL,
				nic->av ? &nic->av->fid : NULL,        nic->cq ? &nic->cq->fid : NULL,
				nic->eq ? &nic->eq->fid : NULL,        nic->domain ? &nic->domain->fid : NULL,
				nic->fabric ? &nic->fabric->fid : NULL };

	for (size_t i = 0; i < sizeof(order) / sizeof(*order); i++)
		if (order[i])
			fi_close(order[i]);
	fi_freeinfo(nic->info);
}

void nic_fail(struct nic *nic)
{
	struct fi_cq_err_entry error = { 0 };

	if (fi_cq_readerr(nic->cq, &error, 0) < 0)
		die("%s: an operation failed and the NIC does not say why", nic->info->domain_attr->name);
	die("%s: an operation failed: %s (%s)", nic->info->domain_attr->name, fi_strerror(error.err),
	    fi_cq_strerror(nic->cq, error.prov_errno, error.err_data, NULL, 0));
}

/* guide: write */
ssize_t nic_write(struct nic *nic, const void *from, size_t bytes, uint64_t to, void *context, uint64_t flags,
		  uint64_t immediate)
{
	struct iovec source = { (void *)from, bytes };
	struct fi_rma_iov target = { .addr = nic->remote_base + to, .len = bytes, .key = nic->remote_key };
	struct fi_msg_rma message = { .msg_iov = &source,
				      .desc = &nic->desc,
				      .iov_count = 1,
				      .addr = nic->peer,
				      .rma_iov = &target,
				      .rma_iov_count = 1,
				      .context = context,
				      .data = immediate };

	return fi_writemsg(nic->ep, &message, flags | nic->delivery);
}
/* guide end */

/* guide: progress */
void nic_progress(struct nic *nic)
{
	struct fi_cq_data_entry entry[16];
	ssize_t count = fi_cq_read(nic->cq, entry, 16);

	if (count == -FI_EAGAIN)
		return; /* nothing has ended yet */
	if (count < 0)
		nic_fail(nic);
	for (ssize_t i = 0; i < count; i++) {
		if (entry[i].flags & FI_REMOTE_CQ_DATA) {
			nic->immediate = entry[i].data; /* a peer's write has landed, and says so */
			nic->immediates++;
		} else if (entry[i].flags & FI_RECV) {
			nic->received++;
		} else if (entry[i].flags & FI_WRITE) {
			nic->written++;
		} else {
			nic->sent++;
		}
	}
}
/* guide end */

void nic_await(struct nic *nic, const uint64_t *counter, uint64_t value)
{
	uint64_t give_up = now_ns() + PATIENCE_S * UINT64_C(1000000000);

	for (uint64_t turn = 1; *counter < value; turn++) {
		nic_progress(nic);
		if (turn % 256)
			continue;
		sched_yield(); /* there may be fewer cores than processes */
		if (now_ns() > give_up)
			die("nothing has happened for %d s: is the other side there?", PATIENCE_S);
	}
}

bool nic_needs_target(const struct nic *nic)
{
	const char *name = nic->info->fabric_attr->prov_name;

	return uses_sockets(name) || !strncmp(name, "shm", 3);
}
