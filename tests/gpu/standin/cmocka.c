/* Runs tests one by one; cmocka.h says for whom. One thread's: a check on another one ends the program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include "cmocka.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAILED = 1, SKIPPED };

static jmp_buf out;
static bool inside;
static pthread_t runner;

static _Noreturn void leave(int how)
{
	if (!inside || !pthread_equal(pthread_self(), runner)) {
		fflush(NULL);
		abort();
	}
	longjmp(out, how);
}

void standin_fail(const char *file, int line, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "%s:%d: ", file, line);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	leave(FAILED);
}

void standin_skip(void)
{
	leave(SKIPPED);
}

void standin_equal(uint64_t a, uint64_t b, const char *text, const char *file, int line)
{
	if (a != b)
		standin_fail(file, line, "%s: %#llx is not %#llx", text, (unsigned long long)a, (unsigned long long)b);
}

void _fail(const char *file, int line)
{
	standin_fail(file, line, "it failed");
}

void print_error(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
}

/* 0, FAILED or SKIPPED. */
static int step(void (*test)(void **state), int (*fixture)(void **state), void **state)
{
	volatile int how;

	inside = true;
	how = setjmp(out);
	if (!how && test)
		test(state);
	else if (!how && fixture && fixture(state))
		how = FAILED;
	inside = false;
	return how;
}

int standin_run(const char *name, const struct CMUnitTest *tests, size_t count, int (*setup)(void **state),
		int (*teardown)(void **state))
{
	static const char *const words[] = { "ok", "FAILED", "skipped" };
	void *group = NULL;
	int failed = 0;

	runner = pthread_self();
	if (setup && setup(&group))
		return (int)count;
	for (size_t i = 0; i < count; i++) {
		void *state = group;
		int how = step(NULL, tests[i].setup, &state);

		if (!how)
			how = step(tests[i].test, NULL, &state);
		if (step(NULL, tests[i].teardown, &state))
			how = FAILED;
		printf("%s: %s: %s\n", name, tests[i].name, words[how]);
		fflush(stdout);
		failed += how == FAILED;
	}
	if (teardown && teardown(&group))
		failed++;
	return failed;
}
