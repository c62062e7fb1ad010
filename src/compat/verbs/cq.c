/* Completion queues and completion channels.
 *
 * The descriptor of a channel is Heddle's own: a program may have as many channels as descriptors.
 * The program polls it, and sets O_NONBLOCK on it to choose whether ibv_get_cq_event() waits;
 * Heddle does not depend on that flag. As on hardware, only ibv_destroy_comp_channel() may close
 * it. */
#include "compat/compat.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* --- channels --- */

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct compat_channel *channel = calloc(1, sizeof(*channel));
	if (channel == NULL)
		return compat_fail(ENOMEM);
	channel->ibv.context = context;
	int error = -hdl_channel_create(compat_context(context)->adapter, &channel->hdl);
	if (error != 0) {
		free(channel);
		return compat_fail(error);
	}
	channel->ibv.fd = hdl_channel_fd(channel->hdl);
	if (fcntl(channel->ibv.fd, F_SETFL, 0) != 0) {
		error = errno;
		hdl_channel_destroy(channel->hdl);
		free(channel);
		return compat_fail(error);
	}
	compat_live_add(&channel->live, OBJECT_CHANNEL, &channel->ibv);
	compat_wait_opened(compat_context(context)->adapter, channel->ibv.fd);
	return &channel->ibv;
}

/* In a child of fork() there is only the descriptor to close: the channel is the parent's. */
static int end_channel(struct compat_channel *channel)
{
	struct compat_context *context = compat_context(channel->ibv.context);
	int fd = channel->ibv.fd;
	compat_wait_closing(fd); /* the number may be another file's as soon as it is closed */
	if (compat_inherited(channel->ibv.context)) {
		close(fd);
		return 0;
	}
	int error = -hdl_channel_destroy(channel->hdl);
	if (error != 0)
		compat_wait_opened(context->adapter, fd);
	return error;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *ibv)
{
	struct compat_channel *channel = compat_channel(ibv);
	struct live *live = compat_live_take(OBJECT_CHANNEL, ibv);
	if (live == NULL)
		return compat_error(EINVAL);
	int error = compat_live_end(live, end_channel(channel));
	if (error == 0)
		free(channel);
	return error;
}

/* Heddle waits in poll(2), which every signal interrupts. A program expects what read(2) does:
 * continue after a handler with SA_RESTART. Which signal it was is not known; continue if all
 * handlers of the program have that flag. */
bool compat_signals_restart(void)
{
	for (int number = 1; number < NSIG; number++) {
		struct sigaction action;
		if (number == SIGSEGV || number == SIGBUS || number == SIGILL || number == SIGFPE)
			continue; /* faults of the thread itself, for which Heddle has a handler,
			             too */
		if (sigaction(number, NULL, &action) != 0)
			continue;
		bool handled = (action.sa_flags & SA_SIGINFO) != 0 ||
		               (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
		if (handled && (action.sa_flags & SA_RESTART) == 0)
			return false;
	}
	return true;
}

int ibv_get_cq_event(struct ibv_comp_channel *ibv, struct ibv_cq **cq, void **cq_context)
{
	struct hdl_channel *channel = compat_channel(ibv)->hdl;
	struct hdl_cq *below;
	void *seen;
	int result = hdl_channel_get(channel, &below, &seen, 0);
	while (result == -HDL_EAGAIN) {
		int flags = fcntl(ibv->fd, F_GETFL);
		if (flags < 0 || (flags & O_NONBLOCK)) {
			errno = flags < 0 ? errno : EAGAIN;
			return -1;
		}
		result = hdl_channel_get(channel, &below, &seen, -1);
		if (result == -HDL_EAGAIN && !compat_signals_restart()) {
			errno = EINTR;
			return -1;
		}
	}
	if (result != 0) {
		errno = -result;
		return -1;
	}
	*cq = seen;
	*cq_context = (*cq)->cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
	hdl_cq_ack(compat_cq(cq)->hdl, count);
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += count;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}

/* --- completion queues --- */

static int make_cq(struct compat_cq *cq, struct ibv_context *context,
                   const struct ibv_cq_init_attr_ex *attr)
{
	struct hdl_channel *channel =
	        attr->channel != NULL ? compat_channel(attr->channel)->hdl : NULL;
	cq->ibv.context = context;
	cq->ibv.channel = attr->channel;
	cq->ibv.cq_context = attr->cq_context;
	cq->ibv.cqe = (int)attr->cqe;
	int error =
	        -hdl_cq_create(compat_context(context)->adapter, attr->cqe, channel, cq, &cq->hdl);
	if (error != 0)
		return error;
	pthread_mutex_init(&cq->ibv.mutex, NULL);
	pthread_cond_init(&cq->ibv.cond, NULL);
	pthread_mutex_init(&cq->poll_lock, NULL);
	cq->target = (struct target){.below = cq->hdl,
	                             .context = compat_context(context),
	                             .kind = TARGET_CQ,
	                             .seen = &cq->ibv};
	compat_target_add(&cq->target);
	if (cq->domain != NULL)
		compat_pd_use(cq->domain);
	cq->ibv.handle = compat_live_add(&cq->live, OBJECT_CQ, &cq->ibv);
	if (attr->channel != NULL) {
		pthread_mutex_lock(&context->mutex);
		attr->channel->refcnt++;
		pthread_mutex_unlock(&context->mutex);
	}
	return 0;
}

struct ibv_cq_ex *compat_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	const uint32_t known = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
	uint32_t flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
	/* A parent domain says which threads poll it, which makes no difference here. */
	struct ibv_pd *domain =
	        attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD ? attr->parent_domain : NULL;
	if ((attr->comp_mask & ~known) != 0 || attr->cqe == 0 || attr->cqe > INT_MAX ||
	    attr->comp_vector >= (uint32_t)context->num_comp_vectors ||
	    (attr->channel != NULL && !compat_live(OBJECT_CHANNEL, attr->channel)) ||
	    ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) &&
	     (!compat_live(OBJECT_PD, domain) || compat_pd(domain)->of == NULL)))
		return compat_fail(EINVAL);
	/* Completions have no time stamp, VLAN, flow tag or tag matching; an overrun is always
	 * reported. */
	if ((attr->wc_flags & ~(uint64_t)IBV_WC_STANDARD_FLAGS) != 0 ||
	    (flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0)
		return compat_fail(EOPNOTSUPP);
	struct compat_cq *cq = calloc(1, sizeof(*cq));
	if (cq == NULL)
		return compat_fail(ENOMEM);
	cq->domain = domain;
	cq->single_threaded = (flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0;
	compat_poll_calls(cq, attr->wc_flags);
	int error = make_cq(cq, context, attr);
	if (error != 0) {
		free(cq);
		return compat_fail(error);
	}
	return &cq->ibv;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                             struct ibv_comp_channel *channel, int vector)
{
	if (cqe <= 0 || vector < 0)
		return compat_fail(EINVAL);
	struct ibv_cq_init_attr_ex attr = {.cqe = (uint32_t)cqe,
	                                   .cq_context = cq_context,
	                                   .channel = channel,
	                                   .comp_vector = (uint32_t)vector,
	                                   .wc_flags = IBV_WC_STANDARD_FLAGS};
	struct ibv_cq_ex *cq = compat_create_cq_ex(context, &attr);
	return cq != NULL ? ibv_cq_ex_to_cq(cq) : NULL;
}

int ibv_resize_cq(struct ibv_cq *ibv, int cqe)
{
	if (cqe <= 0 || !compat_live(OBJECT_CQ, ibv))
		return compat_error(EINVAL);
	int error = -hdl_cq_resize(compat_cq(ibv)->hdl, (uint32_t)cqe);
	if (error == 0)
		ibv->cqe = cqe;
	return compat_error(error);
}

static int end_cq(void *below)
{
	return hdl_cq_destroy(below);
}

int ibv_destroy_cq(struct ibv_cq *ibv)
{
	struct compat_cq *cq = compat_cq(ibv);
	struct live *live = compat_live_take(OBJECT_CQ, ibv);
	if (live == NULL)
		return compat_error(EINVAL);
	int error = compat_live_end(live, -compat_target_end(&cq->target, end_cq));
	if (error != 0)
		return error;
	if (cq->domain != NULL && !compat_inherited(ibv->context))
		compat_pd_leave(cq->domain);
	if (ibv->channel != NULL) {
		pthread_mutex_lock(&ibv->context->mutex);
		ibv->channel->refcnt--;
		pthread_mutex_unlock(&ibv->context->mutex);
	}
	pthread_mutex_destroy(&cq->poll_lock);
	pthread_cond_destroy(&ibv->cond);
	pthread_mutex_destroy(&ibv->mutex);
	free(cq);
	return 0;
}

int compat_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	/* Without a channel there is nothing to notify, and arming the queue is no error. */
	return cq->channel != NULL ? -hdl_cq_arm(compat_cq(cq)->hdl, solicited_only != 0) : 0;
}
