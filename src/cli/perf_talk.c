/* Messages between the two sides of `heddle perf`, through the node agent. */
#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "cli/perf.h"

/* Called by the adapter's thread. */
static void heard(void *context, const struct hdl_cm_msg *msg)
{
	struct perf_mailbox *mail = context;
	pthread_mutex_lock(&mail->lock);
	if (msg->kind == HDL_CM_MESSAGE && msg->length == sizeof(struct perf_msg)) {
		if (mail->guid == 0) {
			mail->guid = msg->guid;
			mail->slot = msg->slot;
		}
		/* From another process, or one too many: dropped without an answer. */
		if (mail->guid == msg->guid && mail->slot == msg->slot &&
		    mail->tail - mail->head < PERF_MAIL)
			memcpy(&mail->list[mail->tail++ % PERF_MAIL], msg->data,
			       sizeof(struct perf_msg));
	} else if (msg->kind == HDL_CM_RETURNED) {
		mail->gone = true;
		mail->error = msg->error;
	} else if (msg->kind == HDL_CM_GONE && mail->guid == msg->guid && mail->slot == msg->slot) {
		mail->gone = true;
		mail->error = 0;
	}
	atomic_store(&mail->waiting, mail->tail - mail->head + mail->gone);
	pthread_cond_broadcast(&mail->news);
	pthread_mutex_unlock(&mail->lock);
}

bool talk_start(struct perf_side *side)
{
	pthread_mutex_init(&side->mail.lock, NULL);
	clock_cond_init(&side->mail.news);
	int error = hdl_cm_receive(side->adapter, heard, &side->mail);
	return error == 0 || side_fail(side, "hdl_cm_receive", error);
}

static bool send_msg(struct perf_side *side, struct hdl_cm_msg *out, const struct perf_msg *msg)
{
	_Static_assert(sizeof(*msg) <= sizeof(out->data), "one message");
	out->length = sizeof(*msg);
	memcpy(out->data, msg, sizeof(*msg));
	int error = hdl_cm_send(side->adapter, out);
	return error == 0 || side_fail(side, "sending to the other side", error);
}

bool talk_knows(struct perf_side *side)
{
	pthread_mutex_lock(&side->mail.lock);
	bool known = side->mail.guid != 0;
	pthread_mutex_unlock(&side->mail.lock);
	return known;
}

bool talk_ended(struct perf_side *side)
{
	pthread_mutex_lock(&side->mail.lock);
	bool gone = side->mail.gone;
	pthread_mutex_unlock(&side->mail.lock);
	return gone;
}

bool talk_send(struct perf_side *side, struct perf_msg *msg)
{
	pthread_mutex_lock(&side->mail.lock);
	struct hdl_cm_msg out = {.guid = side->mail.guid, .slot = side->mail.slot};
	pthread_mutex_unlock(&side->mail.lock);
	return send_msg(side, &out, msg);
}

bool talk_send_to(struct perf_side *side, struct perf_msg *msg, const struct hdl_gid *gid,
                  uint16_t port)
{
	struct hdl_cm_msg out = {.gid = *gid, .space = PERF_SPACE, .port = port, .to_port = 1};
	return send_msg(side, &out, msg);
}

/* Wait for a message; false if none arrived in time. With the lock. */
static bool perf_talk_await(struct perf_mailbox *mail, unsigned seconds)
{
	uint64_t end = clock_now_ns() + seconds * 1000000000ull;
	while (mail->head == mail->tail && !mail->gone) {
		if (seconds == 0)
			pthread_cond_wait(&mail->news, &mail->lock);
		else if (!clock_cond_wait(&mail->news, &mail->lock, end))
			break;
	}
	return mail->head != mail->tail || mail->gone;
}

bool talk_receive(struct perf_side *side, uint32_t kind, struct perf_msg *msg, unsigned seconds)
{
	struct perf_mailbox *mail = &side->mail;
	pthread_mutex_lock(&mail->lock);
	bool came = perf_talk_await(mail, seconds), got = came && mail->head != mail->tail;
	if (got)
		*msg = mail->list[mail->head++ % PERF_MAIL];
	assert(mail->tail - mail->head <= PERF_MAIL); /* no message was overwritten */
	int error = mail->error;
	atomic_store(&mail->waiting, mail->tail - mail->head + mail->gone);
	pthread_mutex_unlock(&mail->lock);
	if (!came)
		return side_fail(side, "the other side does not answer", -HDL_ETIMEDOUT);
	if (!got && error != 0)
		return side_fail(side, "there is no server (start `heddle perf --server' first)",
		                 error);
	if (!got)
		return side_fail(side, "the other side has ended", 0);
	msg->why[sizeof(msg->why) - 1] = '\0';
	if (msg->kind == PERF_FAILED)
		return side_fail(side, msg->why, 0);
	return msg->kind == kind ||
	       side_fail(side, "the other side sent an unexpected message", -HDL_EINVAL);
}
