/* What no file tells the doctor: the driver's cards, and which of libfabric's providers let NICs into them. */
#include "doctor.h"

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>

#include <stdio.h>
#include <string.h>

void doctor_ask_cards(struct doctor_cards *ret_cards)
{
	ret_cards->total = cmd_card_list(ret_cards->card, DOCTOR_CARDS, ret_cards->why, sizeof(ret_cards->why));
	ret_cards->count = ret_cards->total < DOCTOR_CARDS ? ret_cards->total : DOCTOR_CARDS;
}

/* The others copy with the CPU, or stand for one host. */
static bool has_nics(const char *provider)
{
	static const char *const names[] = { "efa", "verbs", "cxi", "opx", "psm3" };

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (strncmp(provider, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

void doctor_ask_hmem(struct doctor_items *ret_providers)
{
	struct fi_info *hints = fi_allocinfo(), *found = NULL;

	if (!hints)
		return;
	hints->caps = FI_MSG | FI_RMA | FI_HMEM;
	hints->mode = ~UINT64_C(0);
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_HMEM;
	if (fi_getinfo(FI_VERSION(1, 14), NULL, NULL, 0, hints, &found) == 0)
		for (struct fi_info *info = found; info; info = info->next)
			if (has_nics(info->fabric_attr->prov_name) &&
			    !strstr(ret_providers->text, info->fabric_attr->prov_name))
				doctor_add(ret_providers, "%s", info->fabric_attr->prov_name);
	if (found)
		fi_freeinfo(found);
	fi_freeinfo(hints);
}
