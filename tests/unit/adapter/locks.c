/* The parts of aperture.c once more, in a program that watches the drive lock: whoever drops it
 * must have it, in every build and without a second thread. The thread sanitizer cannot follow
 * mapped apertures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "adapter/adapter.h"

void __real_adapter_unlock(struct hdl_adapter *adapter);
void __wrap_adapter_unlock(struct hdl_adapter *adapter);

void __wrap_adapter_unlock(struct hdl_adapter *adapter)
{
	if (!lock_held(&adapter->drive.lock)) {
		print_error("the drive lock is dropped by a thread that has not taken it\n");
		abort();
	}
	__real_adapter_unlock(adapter);
}
