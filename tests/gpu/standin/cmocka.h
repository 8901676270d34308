/*
 * The part of cmocka that the card tests use, for hosts without it: tests/gpu/run compiles them with this folder before all others.
 * A test that fails jumps out; its teardown runs, and the others go on.
 */
#ifndef STANDIN_CMOCKA_H
#define STANDIN_CMOCKA_H

#include <stdbool.h>
#include <stdint.h>

struct CMUnitTest {
	const char *name;
	void (*test)(void **state);
	int (*setup)(void **state);
	int (*teardown)(void **state);
};
#define cmocka_unit_test_setup_teardown(test, setup, teardown)                                                         \
	{                                                                                                              \
#test, test, setup, teardown                                                                           \
	}
#define cmocka_unit_test_setup(test, setup)       cmocka_unit_test_setup_teardown(test, setup, NULL)
#define cmocka_unit_test_teardown(test, teardown) cmocka_unit_test_setup_teardown(test, NULL, teardown)
#define cmocka_unit_test(test)                    cmocka_unit_test_setup_teardown(test, NULL, NULL)
#define cmocka_run_group_tests_name(name, tests, setup, teardown)                                                      \
	standin_run(name, tests, sizeof(tests) / sizeof(*(tests)), setup, teardown)
int standin_run(const char *name, const struct CMUnitTest *tests, size_t count, int (*setup)(void **state),
		int (*teardown)(void **state)); /* how many failed */

_Noreturn void standin_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
_Noreturn void standin_skip(void);
void standin_equal(uint64_t a, uint64_t b, const char *text, const char *file, int line);
void _fail(const char *file, int line);
void print_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define skip()        standin_skip()
#define fail_msg(...) standin_fail(__FILE__, __LINE__, __VA_ARGS__)
#define fail()        standin_fail(__FILE__, __LINE__, "it failed")
#define STANDIN_CHECK(condition, text)                                                                                 \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			standin_fail(__FILE__, __LINE__, "%s", text);                                                  \
	} while (0)
#define assert_true(condition)           STANDIN_CHECK(condition, #condition)
#define assert_false(condition)          STANDIN_CHECK(!(condition), "not: " #condition)
#define assert_non_null(pointer)         STANDIN_CHECK((pointer) != NULL, #pointer " is NULL")
#define assert_null(pointer)             STANDIN_CHECK((pointer) == NULL, #pointer " is not NULL")
#define assert_ptr_equal(a, b)           STANDIN_CHECK((const void *)(a) == (const void *)(b), #a " is not " #b)
#define assert_string_equal(a, b)        STANDIN_CHECK(strcmp(a, b) == 0, #a " is not " #b)
#define assert_memory_equal(a, b, bytes) STANDIN_CHECK(memcmp(a, b, bytes) == 0, #a " is not " #b)
#define assert_int_equal(a, b)           standin_equal((uint64_t)(a), (uint64_t)(b), #a " and " #b, __FILE__, __LINE__)
#define assert_int_not_equal(a, b)       STANDIN_CHECK((uint64_t)(a) != (uint64_t)(b), #a " is " #b)
#define assert_in_range(value, low, high)                                                                              \
	STANDIN_CHECK((uint64_t)(value) >= (uint64_t)(low) && (uint64_t)(value) <= (uint64_t)(high),                   \
		      #value " is out of range")
#endif
