/*
 * What greetings say, in a frame's header: who wants to talk to whom, over which rails, and what each side takes. The payload of
 * a hello and of a welcome is the sender's address. Everything read here comes from a stranger. Pure functions, any thread.
 */
#ifndef WF_WIRE_GREETING_H
#define WF_WIRE_GREETING_H

#include <endian.h>
#include <stdint.h>

/* As it lies on the wire, in little endian, without holes. */
struct wf_greeting {
	uint64_t handle;      /* the sender's for the receiver */
	uint64_t sought;      /* the incarnation that the sender looks for */
	uint64_t secret;      /* the sender's for the receiver, who proves its frames by it */
	uint64_t credit;      /* frames of a new connection that the sender takes */
	uint64_t max_message; /* bytes of the largest message that the sender takes */
	uint32_t revision;    /* of the sender's address */
	uint32_t question;    /* HELLO: its number, any; WELCOME: that of the hello it answers */
	uint32_t immediates; /* WELCOME: that the receiver may have unread at the sender from the start, on this path */
	uint8_t from_rail, to_rail; /* indices in the sender's and the receiver's address */
	uint8_t reserved[10];
};
_Static_assert(sizeof(struct wf_greeting) == 64, "a greeting has no holes");

/* Between the host's order and the wire's. */
static inline void wf_greeting_turn(struct wf_greeting *greeting)
{
	greeting->handle = htole64(greeting->handle);
	greeting->sought = htole64(greeting->sought);
	greeting->secret = htole64(greeting->secret);
	greeting->credit = htole64(greeting->credit);
	greeting->max_message = htole64(greeting->max_message);
	greeting->revision = htole32(greeting->revision);
	greeting->question = htole32(greeting->question);
	greeting->immediates = htole32(greeting->immediates);
}
#endif
