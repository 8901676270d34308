/* Structures of programs built with older and newer headers; sized.h says who calls this. */
#include "base/sized.h"

#include <errno.h>
#include <string.h>

int wf_sized_read(void *to, size_t to_bytes, const void *from, size_t least)
{
	size_t from_bytes;

	memcpy(&from_bytes, from, sizeof(from_bytes));
	if (from_bytes < least || from_bytes > WF_SIZED_MOST)
		return -EINVAL;
	for (size_t i = to_bytes; i < from_bytes; i++)
		if (((const char *)from)[i])
			return -E2BIG;
	memset(to, 0, to_bytes);
	memcpy(to, from, from_bytes < to_bytes ? from_bytes : to_bytes);
	memcpy(to, &to_bytes, sizeof(to_bytes));
	return 0;
}

int wf_sized_write(void *to, size_t to_bytes, const void *from, size_t from_bytes)
{
	if (!to_bytes || to_bytes > WF_SIZED_MOST)
		return -EINVAL;
	memset(to, 0, to_bytes);
	memcpy(to, from, to_bytes < from_bytes ? to_bytes : from_bytes);
	return 0;
}
