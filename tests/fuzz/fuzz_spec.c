/* What people write to describe simulated NICs and their faults: SIMFAB, fault rules, times. */
#include "sim/control.h"
#include "sim/spec.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct sim_spec spec;
	struct sim_rule rule, again;
	char error[160], written[512];
	char *text = malloc(bytes + 1);
	uint64_t ns;

	if (!text)
		return 0;
	memcpy(text, data, bytes);
	text[bytes] = 0;
	if (!strchr(text, '/')) /* paths are for fuzz_machine */
		sim_spec_parse(text, &spec, error, sizeof(error));
	sim_parse_time(text, &ns);
	memset(&rule, 0, sizeof(rule));
	if (!sim_rule_parse(text, &rule, error, sizeof(error))) {
		memset(&again, 0, sizeof(again));
		sim_rule_format(&rule, written, sizeof(written));
		if (sim_rule_parse(written, &again, error, sizeof(error)) || again.fault != rule.fault ||
		    again.op != rule.op || again.nic != rule.nic || strcmp(again.host, rule.host) ||
		    again.count != rule.count)
			abort();
	}
	free(text);
	return 0;
}
