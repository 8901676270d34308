/* The doctor's check of the three ways that a card's memory can take: local, staged, direct. What the driver and libfabric say was asked
 * before (ask.c); the rest is in files. */
#include "doctor.h"

#include <weft.h>

#include <stdio.h>
#include <string.h>

static bool has_peermem(const struct doctor *doctor)
{
	return doctor_exists(doctor, "/sys/module/nvidia_peermem") ||
	       doctor_exists(doctor, "/sys/module/nv_peer_mem") || doctor_exists(doctor, "/sys/module/efa_nv_peermem");
}

static bool is_guest(const struct doctor *doctor)
{
	char flags[8192];

	doctor_field(doctor, "/proc/cpuinfo", "flags", flags, sizeof(flags));
	return strstr(flags, " hypervisor") != NULL;
}

/* A descriptor of the card's memory: from the driver, through the kernel, into libfabric. NULL: it gets there; or what stops it. */
static const char *no_dmabuf(const struct doctor *doctor, const struct doctor_cards *cards)
{
	unsigned major = 0, minor = 0;

	for (uint32_t i = 0; i < cards->count; i++)
		if (!cards->card[i].dmabuf)
			return "the NVIDIA driver has no dmabuf";
	if (doctor_kernel(doctor) < 5012)
		return "Linux before 5.12 has no dmabuf for RDMA";
	if (!doctor->libfabric || sscanf(doctor->libfabric, "%4u.%4u", &major, &minor) != 2 ||
	    major * 1000 + minor < 1020)
		return "libfabric before 1.20 takes no dmabuf";
	return NULL;
}

struct missing {
	char seen[380], mend[512]; /* a list each */
};

static void add(char *list, size_t room, const char *separator, const char *text)
{
	size_t used = strlen(list);

	snprintf(list + used, room - used, "%s%s", used ? separator : "", text);
}

static void miss(struct missing *missing, const char *seen, const char *mend)
{
	add(missing->seen, sizeof(missing->seen), ", ", seen);
	add(missing->mend, sizeof(missing->mend), "; ", mend);
}

/* Everything that stands between the NICs and the cards. */
static void look_for_direct(const struct doctor *doctor, const struct doctor_cards *cards, struct missing *missing)
{
	const char *dmabuf = no_dmabuf(doctor, cards);
	bool direct = true;
	char text[120];

#ifndef WEFT_REQUIRE_DIRECT
	miss(missing, "this release of weft does not do it yet", "nothing: it is staged");
#endif
	if (!doctor_has_rdma(doctor))
		miss(missing, "no RDMA device",
		     is_guest(doctor)
			 ? "in a guest: choose a kind of instance with EFA or InfiniBand, or pass a NIC through"
			 : "attach an EFA or InfiniBand/RoCE NIC");
	for (uint32_t i = 0; i < cards->count; i++)
		direct &= cards->card[i].direct;
	if (!direct)
		miss(missing, "the driver lets no NIC into the card (GPUDirect RDMA)",
		     is_guest(doctor) ? "the hypervisor must let NIC and card reach each other"
				      : "GPUDirect needs a data-centre or workstation card");
	if (dmabuf && !has_peermem(doctor)) {
		snprintf(text, sizeof(text), "%s, and no peer memory module is loaded", dmabuf);
		miss(missing, text,
		     "modprobe nvidia_peermem; or the open NVIDIA kernel modules, Linux 5.12 and libfabric 1.20");
	}
	if (doctor->hmem && !*doctor->hmem)
		miss(missing, "libfabric's providers for NICs offer no FI_HMEM",
		     "use a libfabric that was built with CUDA (for EFA that of aws-efa-installer)");
}

static void check_cards(const struct doctor *doctor, struct doctor_finding *finding)
{
	const struct doctor_cards *cards = doctor->cards;
	const struct cmd_card_facts *odd = NULL;
	struct missing missing = { .seen = "" };
	char number[32];

	if (!cards) {
		doctor_say(finding, DOCTOR_NOT_APPLICABLE, NULL, "another host's cards cannot be asked");
		return;
	}
	if (!cards->count && doctor_has_nvidia(doctor)) {
		doctor_say(finding, DOCTOR_WARN, "see the check \"cuda\"; dmesg says what the card's driver met", "%s",
			   cards->why);
		return;
	}
	if (!cards->count) {
		doctor_say(finding, DOCTOR_NOT_APPLICABLE, NULL, "no card");
		return;
	}
	for (uint32_t i = 0; i < cards->count; i++) {
		if (*cards->card[i].not_usable) {
			doctor_say(finding, DOCTOR_WARN,
				   "run nvidia-smi: is the card full, reserved for one process, or lost?",
				   "card %s (%s): %s", cards->card[i].pci, cards->card[i].name,
				   cards->card[i].not_usable);
			return;
		}
		odd = *cards->card[i].not_local ? &cards->card[i] : odd;
	}
	look_for_direct(doctor, cards, &missing);
	snprintf(number, sizeof(number), "%u card%s", cards->total, cards->total == 1 ? "" : "s");
	if (odd)
		doctor_say(finding, DOCTOR_WARN,
			   "in a container share the host's IPC namespace (--ipc=host); guests with a part of a card, "
			   "and WSL, "
			   "have no CUDA IPC: use memory of cuMemCreate",
			   "%s: not local: other processes of this host cannot open card %s's memory (%s)%s%s", number,
			   odd->pci, odd->not_local,
			   *missing.seen ? "; staged over NICs, not direct: " : "; direct over NICs", missing.seen);
	else if (*missing.seen)
		doctor_say(finding, doctor_has_rdma(doctor) ? DOCTOR_WARN : DOCTOR_NOTE, missing.mend,
			   "%s: local between processes of this host; staged over NICs, not direct: %s", number,
			   missing.seen);
	else
		doctor_say(finding, DOCTOR_OK, NULL, "%s: local between processes of this host; direct over NICs (%s)",
			   number, doctor->hmem && *doctor->hmem ? doctor->hmem : "FI_HMEM");
}

const struct doctor_check doctor_card_checks[] = {
	{ "card-memory", "the way that a card's memory takes", check_cards },
	{ 0 },
};
