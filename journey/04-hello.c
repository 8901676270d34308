/*
 * One message, one way: SEND here, RECV there.
 *
 *   build/journey/04-hello [--provider tcp|shm|efa|... | --sim MACHINE] [--listen PORT | --connect HOST:PORT]
 */
#include "common.h"

int main(int argc, char **argv)
{
	struct pair pair = pair_start(&argc, argv);
	struct fi_context2 context; /* the provider's, while the operation is under way */
	static char buffer[64];     /* and so is this: it must not go out of scope */
	struct nic nic;

	nic_open_first(&nic, &pair);
	nic_register(&nic, buffer, sizeof(buffer));

	/* guide: hello */
	if (!pair.starts) /* first the buffer, then the message: it has to land somewhere */
		POST(&nic, fi_recv(nic.ep, buffer, sizeof(buffer), nic.desc, FI_ADDR_UNSPEC, &context));
	nic_introduce(&nic, &pair);
	if (pair.starts) {
		strcpy(buffer, "hello, other machine");
		POST(&nic, fi_send(nic.ep, buffer, strlen(buffer) + 1, nic.desc, nic.peer, &context));
		nic_await(&nic, &nic.sent, 1); /* only now is the buffer ours again */
		printf("sent: %s\n", buffer);
	} else {
		nic_await(&nic, &nic.received, 1);
		printf("received: %s\n", buffer);
	}
	/* guide end */
	pair_meet(&pair); /* an endpoint that closes takes with it what is still under way */
	nic_close(&nic);
	return pair.starts ? pair_end(&pair) : 0;
}
