/* Called by the sanitizers' own start-up code, if there is one. */
#ifndef TEST_SANITIZE_H
#define TEST_SANITIZE_H

const char *__lsan_default_suppressions(void);
const char *__lsan_default_options(void);
#endif
