/* For programs that leave as soon as they are done, by LD_PRELOAD: the first queue pair is destroyed a second later. Where packets get
 * lost the other end may not know yet that its last message arrived, and asks again; nobody answers for one that has left. */
#include <dlfcn.h>
#include <unistd.h>

int ibv_destroy_qp(void *qp);

int ibv_destroy_qp(void *qp)
{
	static int (*destroy)(void *qp);
	if (destroy == NULL) {
		destroy = (int (*)(void *))dlsym(RTLD_NEXT, "ibv_destroy_qp");
		sleep(1);
	}
	return destroy(qp);
}
