/*
 * Applies the control file's rules. Reached only while a rule is set.
 */
#include "prov.h"

#include <time.h>

#define BIT(fault) (1u << (fault))
#define PER_REQUEST                                                                                                    \
	(BIT(SIM_FAULT_ERROR) | BIT(SIM_FAULT_DROP) | BIT(SIM_FAULT_DELAY) | BIT(SIM_FAULT_DUP) | BIT(SIM_FAULT_RNR) | \
	 BIT(SIM_FAULT_OVERRUN) | BIT(SIM_FAULT_INTERNAL) | BIT(SIM_FAULT_ANONYMOUS) | BIT(SIM_FAULT_NEGATIVE) |       \
	 BIT(SIM_FAULT_TWICE))

static struct sim_event event_of(struct domain *dom, enum sim_op_kind op, struct peer *peer)
{
	return (struct sim_event){
		.host = dom->wire->host, .peer = peer && peer->nic ? peer->nic->host : NULL, .nic = dom->nic, .op = op
	};
}

/* The fault of a request is decided once, when it is launched, in posting order: so it replays. */
void fault_mark(struct endpoint *ep, struct request *request, struct peer *peer)
{
	struct sim_event event;

	if (request->fault)
		return;
	peer_resolve(peer); /* a rule may name the peer's host */
	event = event_of(ep->dom, request->kind, peer);
	request->fault = (uint8_t)sim_control_fire(ep->dom->control, &event, PER_REQUEST, &request->fault_argument);
}

/* Waits while any rule is set: clearing all rules ends it early. */
static void stall(struct domain *dom, uint64_t ns)
{
	const struct timespec nap = { 0, 1000000 };

	for (uint64_t passed = 0; passed < ns && fault_active(dom); passed += 1000000)
		nanosleep(&nap, NULL);
}

int fault_refuses_post(struct endpoint *ep, enum request_kind kind, struct peer *peer)
{
	struct sim_event event;
	uint64_t argument;

	peer_resolve(peer);
	event = event_of(ep->dom, (enum sim_op_kind)kind, peer);
	if (sim_control_fire(ep->dom->control, &event, BIT(SIM_FAULT_STALL), &argument) != SIM_FAULT_NONE)
		stall(ep->dom, argument);
	switch (sim_control_fire(ep->dom->control, &event, BIT(SIM_FAULT_EAGAIN) | BIT(SIM_FAULT_REFUSE), &argument)) {
	case SIM_FAULT_EAGAIN:
		return -FI_EAGAIN;
	case SIM_FAULT_REFUSE:
		return -(int)argument;
	default:
		return 0;
	}
}

static bool end_silent(struct sim_control *control, const char *host, uint32_t nic)
{
	return sim_control_stands(control, host, (int)nic, SIM_FAULT_DOWN, NULL) ||
	       sim_control_stands(control, host, (int)nic, SIM_FAULT_DEAD, NULL);
}

bool fault_silent(struct domain *dom, struct peer *peer)
{
	return end_silent(dom->control, dom->wire->host, dom->wire->nic) ||
	       end_silent(dom->control, peer->nic->host, peer->nic->nic);
}

uint64_t fault_slowness(struct domain *dom, struct peer *peer)
{
	uint64_t here = 1, there = 1;

	sim_control_stands(dom->control, dom->wire->host, dom->nic, SIM_FAULT_SLOW, &here);
	sim_control_stands(dom->control, peer->nic->host, (int)peer->nic->nic, SIM_FAULT_SLOW, &there);
	return here > there ? here : there;
}

void fault_stall_registration(struct domain *dom)
{
	struct sim_event event = event_of(dom, SIM_OP_REG, NULL);
	uint64_t argument;

	if (sim_control_fire(dom->control, &event, BIT(SIM_FAULT_STALL), &argument) != SIM_FAULT_NONE)
		stall(dom, argument);
}

void fault_stall_endpoint(struct domain *dom, enum sim_op_kind op)
{
	struct sim_event event = event_of(dom, op, NULL);
	uint64_t argument;

	if (sim_control_fire(dom->control, &event, BIT(SIM_FAULT_STALL), &argument) != SIM_FAULT_NONE)
		stall(dom, argument);
}

int fault_registration(struct domain *dom)
{
	struct sim_event event = event_of(dom, SIM_OP_REG, NULL);
	uint64_t argument;

	if (sim_control_fire(dom->control, &event, BIT(SIM_FAULT_REG), &argument) == SIM_FAULT_NONE)
		return 0;
	return -(int)argument;
}

void fault_internal(struct endpoint *ep)
{
	struct event_queue *eq = ep->eq ? ep->eq : ep->dom->eq;

	if (!eq) {
		sim_log("internal error on NIC %d with no event queue bound to the endpoint: abort()", ep->dom->nic);
		stop_process();
	}
	eq_report(eq, &ep->fid.fid, FI_EIO, 4096);
}
