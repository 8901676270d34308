/* Every attack: what is tried, and in the code what must hold at the victim. One file per kind. */
#ifndef HOSTILE_ATTACKS_H
#define HOSTILE_ATTACKS_H

/* keys.c */
void write_with_a_guessed_key(void **state);
void read_with_a_guessed_key(void **state);
void keys_do_not_repeat(void **state);
void read_what_may_only_be_written(void **state);
void count_what_was_not_written(void **state);

/* manifests.c */
void ask_what_memory_holds(void **state);
void ask_about_memory_that_was_revoked(void **state);
void have_much_checked(void **state);
void store_words_where_they_may_not_be(void **state);

/* landings.c */
void ask_for_rooms_and_copies(void **state);
void say_nonsense_about_landing(void **state);

/* memory.c */
int small_window(void **state);
void fill_the_window_again_and_again(void **state);
void leave_much_unread(void **state);
void send_more_than_a_message(void **state);
void claim_much_with_little(void **state);
void lie_about_acknowledgements(void **state);

/* answers.c */
void never_acknowledge_replies(void **state);
void never_acknowledge_under_many_names(void **state);
void never_acknowledge_revocations(void **state);
void answer_a_call_that_waits(void **state);

/* descriptors.c */
int silent_listeners(void **state);
int silence_ends(void **state);
void names_at_silent_addresses(void **state);
void rails_at_silent_addresses(void **state);

/* greetings.c */
int few_strangers(void **state);
int refuse_unknown(void **state);
void hello_in_the_friends_name(void **state);
void steal_a_name_early(void **state);
void frames_in_the_friends_name(void **state);
void thousands_of_names(void **state);
void more_names_than_allowed(void **state);
void come_and_go(void **state);
void knock_where_nobody_is_let_in(void **state);
void addresses_of_every_kind(void **state);
void noise(void **state);
void answer_another_question(void **state);
void answer_what_nobody_asked(void **state);
void grants_out_of_the_blue(void **state);
void move_all_the_time(void **state);

/* names.c */
void hear_what_the_owner_says(void **state);
void share_the_owners_address(void **state);
void move_to_the_owners_address(void **state);
void be_added_in_the_owners_place(void **state);
void ask_while_the_owner_is_added(void **state);
#endif
