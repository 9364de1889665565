/* assert.h - stops on our own bugs, in release builds too; never for input from outside. */
#ifndef NXL_BASE_ASSERT_H
#define NXL_BASE_ASSERT_H

_Noreturn void nxl_assert_failed(const char *expr, const char *file, int line);
#define NXL_ASSERT(expr) ((expr) ? (void)0 : nxl_assert_failed(#expr, __FILE__, __LINE__))

#endif
