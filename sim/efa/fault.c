/*
 * Applies the control file's rules to work requests and registrations: the same file and rules as simfab's. What a card
 * cannot do is not done: `anonymous`, `negative`, `twice` and `internal` are faults of a provider. Only while a rule is set.
 */
#include "card.h"

#include <errno.h>
#include <time.h>

#define BIT(fault) (1u << (fault))
#define PER_REQUEST                                                                                                    \
	(BIT(SIM_FAULT_ERROR) | BIT(SIM_FAULT_DROP) | BIT(SIM_FAULT_DELAY) | BIT(SIM_FAULT_DUP) | BIT(SIM_FAULT_RNR) | \
	 BIT(SIM_FAULT_OVERRUN))

static enum sim_op_kind kind_of(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_READ:
		return SIM_OP_READ;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return SIM_OP_WRITE;
	default:
		return SIM_OP_SEND;
	}
}

static struct sim_event event_of(struct card *card, enum sim_op_kind op, const struct target *target)
{
	return (struct sim_event){
		.host = model.spec.host, .peer = target ? target->nic->host : NULL, .nic = card->device->nic, .op = op
	};
}

/* Decided once, in posting order: so it replays. */
void fault_mark(struct card *card, struct request *request, const struct target *target)
{
	struct sim_event event = event_of(card, kind_of(request->opcode), target);

	request->fault = (uint8_t)sim_control_fire(model.control, &event, PER_REQUEST, &request->fault_argument);
}

/* While any rule stands: clearing ends it early. */
static void stall(uint64_t ns)
{
	const struct timespec nap = { 0, 1000000 };

	for (uint64_t passed = 0; passed < ns && fault_active(); passed += 1000000)
		nanosleep(&nap, NULL);
}

int fault_post(struct card *card, enum ibv_wr_opcode opcode)
{
	struct sim_event event = event_of(card, kind_of(opcode), NULL);
	uint64_t argument;

	if (sim_control_fire(model.control, &event, BIT(SIM_FAULT_STALL), &argument) != SIM_FAULT_NONE)
		stall(argument);
	switch (sim_control_fire(model.control, &event, BIT(SIM_FAULT_EAGAIN) | BIT(SIM_FAULT_REFUSE), &argument)) {
	case SIM_FAULT_EAGAIN:
		return ENOMEM; /* what a full queue says; the provider makes -FI_EAGAIN of it */
	case SIM_FAULT_REFUSE:
		return (int)argument;
	default:
		return 0;
	}
}

static bool end_silent(const char *host, int nic)
{
	return sim_control_stands(model.control, host, nic, SIM_FAULT_DOWN, NULL) ||
	       sim_control_stands(model.control, host, nic, SIM_FAULT_DEAD, NULL);
}

bool fault_silent(struct card *card, const struct target *target)
{
	return end_silent(model.spec.host, card->device->nic) ||
	       (target && end_silent(target->nic->host, (int)target->nic->nic));
}

uint64_t fault_slowness(struct card *card, const struct target *target)
{
	uint64_t here = 1, there = 1;

	sim_control_stands(model.control, model.spec.host, card->device->nic, SIM_FAULT_SLOW, &here);
	if (target)
		sim_control_stands(model.control, target->nic->host, (int)target->nic->nic, SIM_FAULT_SLOW, &there);
	return here > there ? here : there;
}

int fault_registration(struct card *card)
{
	struct sim_event event = event_of(card, SIM_OP_REG, NULL);
	uint64_t argument;

	if (sim_control_fire(model.control, &event, BIT(SIM_FAULT_STALL), &argument) != SIM_FAULT_NONE)
		stall(argument);
	if (sim_control_fire(model.control, &event, BIT(SIM_FAULT_REG), &argument) == SIM_FAULT_NONE)
		return 0;
	return (int)argument;
}
