/*
 * Which queue pair a GID and a number name. Each published queue pair has a symbolic link in /dev/shm, named after both,
 * that points at its segment: making a link is how a number is taken, by any process of this user, and following it is how
 * it is found. Links of dead processes dangle and are removed by the next to meet them. With the card's lock.
 */
#include "card.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIR_SHM  "/dev/shm"
#define QPN_MOST 0xfffeu

static void link_path(char *path, size_t bytes, const uint8_t gid[16], uint32_t qpn)
{
	int n = snprintf(path, bytes, DIR_SHM "/simefa-%u-", (unsigned)geteuid());

	for (int i = 8; i < 16; i++)
		n += snprintf(path + n, bytes - (size_t)n, "%02x", gid[i]);
	snprintf(path + n, bytes - (size_t)n, "-%04x", qpn);
}

/* Where a link points: the segment's owner and number. */
static bool follow(const char *path, int32_t *ret_pid, uint32_t *ret_id)
{
	char to[128];
	ssize_t n = readlink(path, to, sizeof to - 1);

	if (n <= 0)
		return false;
	to[n] = 0;
	return sscanf(to, "simfab-%*u-%d-%x", ret_pid, ret_id) == 2;
}

int qpn_publish(struct queue_pair *qp)
{
	const struct wire_head *head = &qp->wire->head;
	uint8_t *gid = qp->card->device->gid.raw;
	char path[160], to[128];

	snprintf(to, sizeof to, "simfab-%u-%d-%08x", (unsigned)geteuid(), (int)head->pid, head->id);
	/* Numbers go up, so a late packet meets nobody rather than a newcomer. */
	for (uint32_t tries = 0; tries < QPN_MOST; tries++) {
		uint32_t qpn = qp->card->next_qpn++ % QPN_MOST + 1;

		link_path(path, sizeof path, gid, qpn);
		if (!symlink(to, path)) {
			qp->base.qp_base.qp_num = qpn;
			return 0;
		}
		if (errno != EEXIST)
			return errno;
	}
	return ENOMEM;
}

void qpn_withdraw(struct queue_pair *qp)
{
	char path[160];

	link_path(path, sizeof path, qp->card->device->gid.raw, qp->base.qp_base.qp_num);
	unlink(path);
}

void qpn_reap(void)
{
	char prefix[64], path[PATH_MAX];
	struct dirent *entry;
	DIR *dir = opendir(DIR_SHM);

	if (!dir)
		return;
	snprintf(prefix, sizeof prefix, "simefa-%u-", (unsigned)geteuid());
	while ((entry = readdir(dir))) {
		if (strncmp(entry->d_name, prefix, strlen(prefix)))
			continue;
		snprintf(path, sizeof path, DIR_SHM "/%s", entry->d_name);
		if (access(path, F_OK) && errno == ENOENT)
			unlink(path);
	}
	closedir(dir);
}

static struct target **bucket(struct card *card, const union ibv_gid *gid, uint32_t qpn)
{
	uint64_t hash = (gid->global.interface_id ^ qpn) * 0x9e3779b97f4a7c15ull;

	return &card->targets[(hash >> 32) % CARD_TARGETS];
}

static void release(struct target *target)
{
	wire_detach(target->ep_map);
	wire_detach(target->nic_map);
	free(target);
}

void target_forget(struct card *card, struct target *target)
{
	struct target **at = bucket(card, &target->gid, target->qpn);

	while (*at != target)
		at = &(*at)->next;
	*at = target->next;
	release(target);
}

void targets_forget(struct card *card, const union ibv_gid *gid)
{
	for (uint32_t i = 0; i < CARD_TARGETS; i++)
		for (struct target *target = card->targets[i], *next; target; target = next) {
			next = target->next;
			if (!gid || !memcmp(&target->gid, gid, sizeof *gid))
				target_forget(card, target);
		}
}

/* Their segments stay mapped until then. */
static void forget_closed(struct card *card)
{
	for (uint32_t i = 0; i < CARD_TARGETS; i++)
		for (struct target *target = card->targets[i], *next; target; target = next) {
			next = target->next;
			if (atomic_load_explicit(&target->ep->head.state, memory_order_acquire) != WIRE_LIVE)
				target_forget(card, target);
		}
}

static struct target *attach(struct card *card, const union ibv_gid *gid, uint32_t qpn)
{
	struct target *target, **at = bucket(card, gid, qpn);
	char path[160];
	uint32_t id;
	int32_t pid;

	link_path(path, sizeof path, gid->raw, qpn);
	if (!follow(path, &pid, &id) || !(target = calloc(1, sizeof *target)))
		return NULL;
	target->gid = *gid;
	target->qpn = qpn;
	target->ep_map = wire_attach(pid, id, WIRE_ENDPOINT);
	if (target->ep_map) {
		target->ep = wire_memory(target->ep_map);
		target->nic_map = wire_attach(pid, target->ep->nic_id, WIRE_NIC);
	}
	/* A segment is mapped before its owner is known to live: its file may be left by the dead. */
	if (!target->nic_map || !wire_owner_alive(target->ep_map)) {
		release(target);
		unlink(path);
		return NULL;
	}
	target->nic = wire_memory(target->nic_map);
	target->next = *at;
	*at = target;
	return target;
}

struct target *target_find(struct card *card, const union ibv_gid *gid, uint32_t qpn)
{
	struct target *target;

	for (target = *bucket(card, gid, qpn); target; target = target->next)
		if (target->qpn == qpn && !memcmp(&target->gid, gid, sizeof *gid))
			break;
	if (target && atomic_load_explicit(&target->ep->head.state, memory_order_acquire) == WIRE_LIVE)
		return target;
	forget_closed(card);
	return attach(card, gid, qpn);
}
