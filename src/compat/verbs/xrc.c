/* Extended reliable connections: domains, and queue pairs that several openers share.
 *
 * Within this process, a domain is identified by the file that it was opened with: every open of
 * the same file gives the same domain, and the last close destroys it. The kernel shares domains
 * between processes in this way; here each process has receive queues of its own. */
#include "compat/compat.h"

#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct domain {
	struct domain *next;
	struct hdl_adapter *adapter;
	struct hdl_xrcd *hdl;
	int fd; /* keeps the file open, so that no other file gets its inode number; -1: none */
	dev_t device;
	ino_t inode;
	uint32_t opens;
};

/* A target queue pair, and how many have opened it. */
struct shared_qp {
	struct shared_qp *next;
	struct hdl_qp *hdl;
	struct hdl_xrcd *xrcd;
	uint32_t users;
};

struct compat_xrcd {
	struct ibv_xrcd ibv;
	struct live live;
	struct domain *domain;
	_Atomic uint32_t
	        users; /* queue pairs and shared receive queues created through this open */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the two lists */
static struct domain *domains;
static struct shared_qp *shared_qps;

static struct compat_xrcd *verbs_xrc_of(struct ibv_xrcd *xrcd)
{
	return (struct compat_xrcd *)xrcd;
}

void compat_xrc_forget(void)
{
	pthread_mutex_init(&lock, NULL);
	domains = NULL;
	shared_qps = NULL;
}

struct hdl_xrcd *compat_xrcd_use(struct ibv_xrcd *xrcd)
{
	atomic_fetch_add(&verbs_xrc_of(xrcd)->users, 1);
	return verbs_xrc_of(xrcd)->domain->hdl;
}

void compat_xrcd_leave(struct ibv_xrcd *xrcd)
{
	uint32_t users = atomic_fetch_sub(&verbs_xrc_of(xrcd)->users, 1);
	assert(users > 0); /* pairs with compat_xrcd_use() */
	(void)users;
}

/* --- domains --- */

static struct domain *verbs_xrc_find(const struct hdl_adapter *adapter, const struct stat *file)
{
	struct domain *at = domains;
	while (at != NULL && (at->adapter != adapter || at->fd < 0 || at->device != file->st_dev ||
	                      at->inode != file->st_ino))
		at = at->next;
	return at;
}

static int verbs_xrc_make(struct hdl_adapter *adapter, int fd, const struct stat *file,
                          struct domain **out)
{
	struct domain *domain = calloc(1, sizeof(*domain));
	if (domain == NULL)
		return ENOMEM;
	domain->adapter = adapter;
	domain->fd = -1;
	int error = 0;
	if (fd >= 0) {
		domain->device = file->st_dev;
		domain->inode = file->st_ino;
		domain->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		error = domain->fd < 0 ? errno : 0;
	}
	if (error == 0)
		error = -hdl_xrcd_open(adapter, &domain->hdl);
	if (error != 0) {
		if (domain->fd >= 0)
			close(domain->fd);
		free(domain);
		return error;
	}
	domain->next = domains;
	domains = domain;
	*out = domain;
	return 0;
}

/* The domain for @attr, which is created if need be. With the lock. Errors are the kernel's. */
static int open_domain(struct hdl_adapter *adapter, const struct ibv_xrcd_init_attr *attr,
                       struct domain **out)
{
	struct stat file = {0};
	if (attr->fd == -1)
		return verbs_xrc_make(adapter, -1, NULL, out);
	if (fstat(attr->fd, &file) != 0)
		return errno;
	*out = verbs_xrc_find(adapter, &file);
	if (*out == NULL)
		return attr->oflags & O_CREAT ? verbs_xrc_make(adapter, attr->fd, &file, out)
		                              : EAGAIN;
	return attr->oflags & O_EXCL ? EINVAL : 0;
}

struct ibv_xrcd *compat_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
	const uint32_t needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	if (attr->comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED)
		return compat_fail(EOPNOTSUPP);
	if ((attr->comp_mask & needed) != needed || (attr->oflags & ~(O_CREAT | O_EXCL)) != 0)
		return compat_fail(EINVAL);
	struct compat_xrcd *xrcd = calloc(1, sizeof(*xrcd));
	if (xrcd == NULL)
		return compat_fail(ENOMEM);
	pthread_mutex_lock(&lock);
	int error = open_domain(compat_context(context)->adapter, attr, &xrcd->domain);
	if (error == 0)
		xrcd->domain->opens++;
	pthread_mutex_unlock(&lock);
	if (error != 0) {
		free(xrcd);
		return compat_fail(error);
	}
	xrcd->ibv.context = context;
	compat_live_add(&xrcd->live, OBJECT_XRCD, &xrcd->ibv);
	return &xrcd->ibv;
}

/* With the lock. */
static int close_domain(struct domain *domain)
{
	if (domain->opens > 1) {
		domain->opens--;
		return 0;
	}
	int error = -hdl_xrcd_close(domain->hdl);
	if (error != 0)
		return error;
	struct domain **at = &domains;
	while (*at != domain)
		at = &(*at)->next;
	*at = domain->next;
	if (domain->fd >= 0)
		close(domain->fd);
	free(domain);
	return 0;
}

int compat_close_xrcd(struct ibv_xrcd *ibv)
{
	struct compat_xrcd *xrcd = verbs_xrc_of(ibv);
	struct live *live = compat_live_take(OBJECT_XRCD, ibv);
	if (live == NULL)
		return compat_error(EINVAL);
	int error = 0;
	if (!compat_inherited(ibv->context)) {
		pthread_mutex_lock(&lock);
		error = atomic_load(&xrcd->users) > 0 ? EBUSY : close_domain(xrcd->domain);
		pthread_mutex_unlock(&lock);
	}
	error = compat_live_end(live, error);
	if (error == 0)
		free(xrcd);
	return error;
}

int compat_get_srq_num(struct ibv_srq *srq, uint32_t *number)
{
	if (!compat_live(OBJECT_SRQ, srq))
		return compat_error(EINVAL);
	*number = hdl_srq_number(compat_srq(srq)->hdl);
	return *number != 0 ? 0 : compat_error(EINVAL);
}

/* --- target queue pairs --- */

int compat_share_qp(struct hdl_qp *qp, struct hdl_xrcd *xrcd)
{
	struct shared_qp *shared = malloc(sizeof(*shared));
	if (shared == NULL)
		return ENOMEM;
	pthread_mutex_lock(&lock);
	*shared = (struct shared_qp){.next = shared_qps, .hdl = qp, .xrcd = xrcd, .users = 1};
	shared_qps = shared;
	pthread_mutex_unlock(&lock);
	return 0;
}

struct hdl_qp *compat_shared_qp(uint32_t number, struct hdl_xrcd *xrcd)
{
	pthread_mutex_lock(&lock);
	struct shared_qp *at = shared_qps;
	while (at != NULL && (at->xrcd != xrcd || hdl_qp_number(at->hdl) != number))
		at = at->next;
	if (at != NULL)
		at->users++;
	pthread_mutex_unlock(&lock);
	return at != NULL ? at->hdl : NULL;
}

int compat_unshare_qp(void *below)
{
	int result = 0;
	pthread_mutex_lock(&lock);
	struct shared_qp **at = &shared_qps;
	while (*at != NULL && (*at)->hdl != below)
		at = &(*at)->next;
	struct shared_qp *shared = *at;
	if (shared == NULL) {
		result = -HDL_EINVAL;
	} else if (shared->users > 1) {
		shared->users--;
	} else {
		result = hdl_qp_destroy(below);
		if (result == 0) {
			*at = shared->next;
			free(shared);
		}
	}
	pthread_mutex_unlock(&lock);
	return result;
}
