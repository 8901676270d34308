/*
 * A hostile peer: it speaks raw libfabric to an engine and tries to write, read, grow, confuse and crash it.
 * hostile tcp|efa|verbs [ATTACK]; the latter two on simulated NICs. Each attack opens a world of its own.
 */
#include "hostile/attacks.h"
#include "hostile/world.h"

#include <stdio.h>

#define ATTACK(name)              cmocka_unit_test_setup_teardown(name, world_open, world_close)
#define WITH_A_SMALL_WINDOW(name) cmocka_unit_test_setup_teardown(name, small_window, world_close)

int main(int argc, char **argv)
{
	const struct CMUnitTest attacks[] = {
		ATTACK(write_with_a_guessed_key),
		ATTACK(read_with_a_guessed_key),
		ATTACK(keys_do_not_repeat),
		ATTACK(read_what_may_only_be_written),
		ATTACK(count_what_was_not_written),
		ATTACK(ask_what_memory_holds),
		ATTACK(ask_about_memory_that_was_revoked),
		ATTACK(have_much_checked),
		ATTACK(store_words_where_they_may_not_be),
		ATTACK(ask_for_rooms_and_copies),
		ATTACK(say_nonsense_about_landing),
		WITH_A_SMALL_WINDOW(fill_the_window_again_and_again),
		WITH_A_SMALL_WINDOW(leave_much_unread),
		WITH_A_SMALL_WINDOW(send_more_than_a_message),
		WITH_A_SMALL_WINDOW(claim_much_with_little),
		ATTACK(lie_about_acknowledgements),
		ATTACK(never_acknowledge_replies),
		ATTACK(never_acknowledge_under_many_names),
		ATTACK(never_acknowledge_revocations),
		ATTACK(answer_a_call_that_waits),
		cmocka_unit_test_setup_teardown(names_at_silent_addresses, silent_listeners, silence_ends),
		cmocka_unit_test_setup_teardown(rails_at_silent_addresses, silent_listeners, silence_ends),
		ATTACK(hello_in_the_friends_name),
		ATTACK(steal_a_name_early),
		ATTACK(frames_in_the_friends_name),
		ATTACK(thousands_of_names),
		cmocka_unit_test_setup_teardown(more_names_than_allowed, few_strangers, world_close),
		cmocka_unit_test_setup_teardown(come_and_go, few_strangers, world_close),
		cmocka_unit_test_setup_teardown(knock_where_nobody_is_let_in, refuse_unknown, world_close),
		ATTACK(addresses_of_every_kind),
		ATTACK(noise),
		ATTACK(answer_another_question),
		ATTACK(answer_what_nobody_asked),
		ATTACK(grants_out_of_the_blue),
		ATTACK(move_all_the_time),
		ATTACK(hear_what_the_owner_says),
		ATTACK(share_the_owners_address),
		ATTACK(move_to_the_owners_address),
		ATTACK(be_added_in_the_owners_place),
		ATTACK(ask_while_the_owner_is_added),
	};

	if (argc < 2 || !world_choose(argv[1])) {
		fprintf(stderr, "usage: hostile tcp|efa|verbs [ATTACK]\n");
		return 2;
	}
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	return cmocka_run_group_tests_name("hostile", attacks, NULL, NULL);
}
