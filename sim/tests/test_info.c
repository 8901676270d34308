/* fi_getinfo: the p5's 32 NICs with the captured values, the other machines, and hints that must not match. */
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The NICs of the captured p5, in order. */
static const int p5_buses[32] = { 79,  80,  81,  82,  96,  97,  98,  99,  113, 114, 115, 116, 130, 131, 132, 133,
				  147, 148, 149, 150, 164, 165, 166, 167, 181, 182, 183, 184, 198, 199, 200, 201 };

static int length_of(const struct fi_info *info)
{
	int n = 0;

	for (; info; info = info->next)
		n++;
	return n;
}

static void check_p5_nic(const struct fi_info *i, int bus)
{
	char name[32];

	snprintf(name, sizeof name, "rdmap%ds0", bus);
	assert_string_equal(i->nic->device_attr->name, name);
	assert_string_equal(i->nic->device_attr->device_id, "0xefa1");
	assert_string_equal(i->nic->device_attr->device_version, "6");
	assert_string_equal(i->nic->device_attr->vendor_id, "0x1d0f");
	assert_string_equal(i->nic->device_attr->driver, "efa");
	assert_int_equal(i->nic->bus_attr->bus_type, FI_BUS_PCI);
	assert_int_equal(i->nic->bus_attr->attr.pci.bus_id, bus);
	assert_int_equal(i->nic->link_attr->mtu, 8760);
	assert_int_equal(i->nic->link_attr->speed, 100000000000ull);
	assert_int_equal(i->nic->link_attr->state, FI_LINK_UP);
	strcat(name, "-rdm");
	assert_string_equal(i->domain_attr->name, name);
}

static void check_p5_limits(const struct fi_info *i)
{
	assert_int_equal(i->addr_format, FI_ADDR_EFA);
	assert_int_equal(i->src_addrlen, 32);
	assert_int_equal(i->mode, 0);
	assert_int_equal(i->tx_attr->inject_size, 4096);
	assert_int_equal(i->tx_attr->size, 4096);
	assert_int_equal(i->tx_attr->iov_limit, 4);
	assert_int_equal(i->tx_attr->rma_iov_limit, 1);
	assert_int_equal(i->rx_attr->size, 8192);
	assert_int_equal(i->rx_attr->iov_limit, 4);
	assert_int_equal(i->ep_attr->type, FI_EP_RDM);
	assert_int_equal(i->ep_attr->protocol, FI_PROTO_EFA);
	assert_int_equal(i->ep_attr->protocol_version, 4);
	assert_true(i->ep_attr->max_msg_size == SIZE_MAX);
	assert_int_equal(i->ep_attr->max_order_raw_size, 8776);
	assert_int_equal(i->domain_attr->threading, FI_THREAD_SAFE);
	assert_int_equal(i->domain_attr->data_progress, FI_PROGRESS_AUTO);
	assert_int_equal(i->domain_attr->resource_mgmt, FI_RM_ENABLED);
	assert_int_equal(i->domain_attr->av_type, FI_AV_TABLE);
	assert_int_equal(i->domain_attr->mr_mode, FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_HMEM);
	assert_int_equal(i->domain_attr->mr_key_size, 4);
	assert_int_equal(i->domain_attr->cq_data_size, 4);
	assert_int_equal(i->domain_attr->cq_cnt, 512);
	assert_int_equal(i->domain_attr->ep_cnt, 256);
	assert_int_equal(i->domain_attr->mr_iov_limit, 1);
	assert_int_equal(i->domain_attr->mr_cnt, 262144);
	assert_string_equal(i->fabric_attr->name, "efa");
	assert_string_equal(i->fabric_attr->prov_name, "simfab");
}

static void p5(void **state)
{
	struct fi_info *hints = fi_allocinfo(), *info, *copy;

	hints->fabric_attr->prov_name = strdup("simfab");
	/* fi_allocinfo gives attributes without memory bits: offer what the capture shows. */
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_HMEM;
	info = rig_info("p5", hints);
	assert_int_equal(length_of(info), 32);
	for (struct fi_info *i = info; i; i = i->next) {
		check_p5_nic(i, p5_buses[length_of(info) - length_of(i)]);
		check_p5_limits(i);
	}
	copy = fi_dupinfo(info); /* the NIC's attributes survive a copy */
	check_p5_nic(copy, 79);
	assert_non_null(strstr(fi_tostr(copy, FI_TYPE_INFO), "speed: 100000000000"));
	fi_freeinfo(copy);
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

static void others(void **state)
{
	static const struct {
		const char *spec;
		int nics;
		uint64_t speed;
	} machines[] = { { "p5en", 16, 200 }, { "p6-b200", 8, 400 }, { "p6-b300", 16, 400 }, { "verbs", 2, 200 } };
	struct fi_info *hints = rig_hints(FI_THREAD_SAFE);

	for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
		struct fi_info *info = rig_info(machines[i].spec, hints);

		assert_int_equal(length_of(info), machines[i].nics);
		assert_int_equal(info->nic->link_attr->speed, machines[i].speed * 1000000000ull);
		fi_freeinfo(info);
	}
	fi_freeinfo(hints);
}

static void personalities(void **state)
{
	struct fi_info *hints = rig_hints(FI_THREAD_SAFE), *info;

	info = rig_info("p5,personality=efa-direct", hints);
	assert_int_equal(info->mode, FI_CONTEXT2);
	assert_int_equal(info->tx_attr->inject_size, 32);
	assert_int_equal(info->tx_attr->iov_limit, 2);
	assert_true(info->domain_attr->mr_mode & FI_MR_LOCAL);
	assert_int_equal(info->ep_attr->max_msg_size, 1u << 30);
	assert_int_equal(info->tx_attr->msg_order, 0);
	assert_string_equal(info->fabric_attr->name, "efa-direct");
	fi_freeinfo(info);
	info = rig_info("verbs", hints);
	assert_true(info->tx_attr->msg_order & FI_ORDER_WAW);
	assert_int_equal(info->domain_attr->mr_mode, FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY);
	assert_int_equal(info->domain_attr->mr_key_size, 4);
	fi_freeinfo(info);
	hints->mode = 0; /* efa-direct needs FI_CONTEXT2 */
	assert_null(rig_info("p5,personality=efa-direct", hints));
	fi_freeinfo(hints);
}

static void refused(const char *spec, const char *what, void (*change)(struct fi_info *))
{
	struct fi_info *hints = rig_hints(FI_THREAD_SAFE), *info;

	change(hints);
	info = rig_info(spec, hints);
	if (info)
		fail_msg("hints with %s matched", what);
	fi_freeinfo(hints);
}

static void want_msg(struct fi_info *h)
{
	h->ep_attr->type = FI_EP_MSG;
}
static void want_tagged(struct fi_info *h)
{
	h->caps |= FI_TAGGED;
}
static void want_order(struct fi_info *h)
{
	h->tx_attr->msg_order = FI_ORDER_WAW;
}
static void no_prov_key(struct fi_info *h)
{
	h->domain_attr->mr_mode &= ~FI_MR_PROV_KEY;
}
static void no_local(struct fi_info *h)
{
	h->domain_attr->mr_mode &= ~FI_MR_LOCAL;
}
static void other_domain(struct fi_info *h)
{
	h->domain_attr->name = strdup("eth0");
}
static void av_map(struct fi_info *h)
{
	h->domain_attr->av_type = FI_AV_MAP;
}
static void long_inject(struct fi_info *h)
{
	h->tx_attr->inject_size = 1 << 20;
}
static void nothing(struct fi_info *h)
{
}

static void hints_filter(void **state)
{
	struct fi_info *hints = rig_hints(FI_THREAD_SAFE), *info;

	refused("p5", "FI_EP_MSG", want_msg);
	refused("p5", "FI_TAGGED", want_tagged);
	refused("p5", "FI_ORDER_WAW", want_order);
	refused("p5", "no FI_MR_PROV_KEY", no_prov_key);
	refused("verbs", "no FI_MR_LOCAL", no_local);
	refused("p5", "another domain", other_domain);
	refused("p5", "FI_AV_MAP", av_map);
	refused("p5", "a long inject", long_inject);
	refused("p5,rate=zz", "a bad specification", nothing);
	hints->domain_attr->name = strdup("rdmap96s0-rdm");
	info = rig_info("p5", hints);
	assert_int_equal(length_of(info), 1);
	assert_string_equal(info->domain_attr->name, "rdmap96s0-rdm");
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

static void ten_thousand_peers(void **state)
{
	fi_addr_t *addr = malloc(10000 * sizeof *addr);
	uint8_t address[32];
	struct rig rig;
	size_t bytes = sizeof address;
	uint64_t start;

	rig_open_spec(&rig, "p5,nics=1");
	start = now_ns();
	for (int i = 0; i < 10000; i++) {
		memcpy(address, rig.address, 32);
		memcpy(address + 28, &i, sizeof i); /* a different endpoint each time */
		assert_int_equal(fi_av_insert(rig.av, address, 1, &addr[i], 0, NULL), 1);
	}
	assert_true(now_ns() - start < RIG_DEADLINE);
	assert_int_equal(fi_av_lookup(rig.av, addr[9999], address, &bytes), 0);
	assert_memory_equal(address, rig.address, 16);
	assert_int_equal(fi_av_remove(rig.av, addr, 10000, 0), 0);
	assert_int_equal(fi_av_remove(rig.av, addr, 1, 0), -FI_EINVAL);
	assert_int_equal(fi_av_insert(rig.av, rig.address, 1, &addr[0], 0, NULL), 1);
	assert_true(addr[0] < 10000); /* slots are reused */
	rig_close(&rig);
	free(addr);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(p5),
		cmocka_unit_test(others),
		cmocka_unit_test(personalities),
		cmocka_unit_test(hints_filter),
		cmocka_unit_test(ten_thousand_peers),
	};

	return cmocka_run_group_tests_name("fi_getinfo", tests, NULL, NULL);
}
